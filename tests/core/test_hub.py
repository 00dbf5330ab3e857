"""What the server checks and keeps: label ranges of what comes in, and the hub's own releases across a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.core.payloads import Gradient, SyntheticSet
from prismfl.core.rounds import Hub, initial_state, labels_in_range, server_step
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.description import declared, describe, job_of
from prismfl.runs.result import state_digest
from tests.site.folders import NAMES, run_config


@pytest.mark.parametrize(
    ("y", "good"),
    [
        (torch.tensor([0, 9]), True),
        (torch.tensor([0, 10]), False),
        (torch.tensor([-1, 3]), False),
        (torch.tensor([[0.5, 0.5], [1.0, 0.0]]), True),
        (torch.tensor([[0.5, -0.5], [1.0, 0.0]]), False),
        (torch.tensor([[1], [2]]), False),
        (torch.tensor([[0.1, 0.2], [0.0, 0.0]]), True),
        (torch.tensor([0.5, 0.5]), False),
    ],
)
def test_labels_of_a_synthetic_set_are_declared_classes(y: torch.Tensor, good: bool) -> None:
    assert labels_in_range(SyntheticSet.of(torch.zeros(2, 1, 4, 4), y), 10) is good


def test_a_hub_that_was_killed_after_its_release_sends_the_same_one(tmp_path: Path) -> None:
    config = run_config(method="dp-fedavg-client").model_copy(update={"settings": {"sigma": 1.0, "rounds": 2}})
    job = job_of(describe(config, declared(config)[0], NAMES))
    ledger = Ledger.open(tmp_path / "hub.sqlite")
    dataset = ledger.dataset("clients", records=[name.encode() for name in NAMES])
    ledger.reserve(job.run, dataset, job.plan())
    hub = Hub(ledger, dataset, deployed=True)
    state = initial_state(job)
    update = Gradient({k: torch.ones_like(t) for k, t in state.items["model"].tensors.items()})
    inbox = {name: {"update": update} for name in NAMES}
    first = server_step(job, state, inbox, hub=hub)
    again = server_step(job, state, inbox, hub=hub)
    assert state_digest(first) == state_digest(again)
    assert again.round == 1
    assert len(ledger.charges(run=job.run)) == 1
