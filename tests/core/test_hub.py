"""What the server checks and keeps: label ranges of what comes in, and the hub's own releases across a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.core.hub import OpenedSum, Opening, PrivateSum
from prismfl.core.payloads import Gradient, Statistics, SyntheticSet
from prismfl.core.rounds import Hub, initial_state, labels_in_range, server_step
from prismfl.errors import BoundaryError, UserError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.shares import Rules, Secrecy
from prismfl.rng import Key
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


def test_a_sum_over_nobody_is_refused() -> None:
    with pytest.raises(UserError, match="declared number of clients >= 1, got 0"):
        PrivateSum({}, declared=0, noise=Key.seed(0).noise())


@pytest.mark.parametrize(("bound", "sigma"), [(2.0, 3.0), (1.0, 2.0)])
def test_an_opened_sum_is_read_with_the_numbers_it_was_made_with(bound: float, sigma: float) -> None:
    """Held is more noise than promised: promised is charged, held is what the method reckons with."""
    rules = Rules.fit(("a", "b"), Secrecy(2), length=2, bound=1.0, sigma=2.0, label="run/0")
    total = {"sum": Statistics({"s": torch.tensor([1.0, 2.0], dtype=torch.float64)})}
    door, like = OpenedSum(Opening(total, rules, 3.0, "simulation"), declared=2), {"s": torch.zeros(2)}
    with pytest.raises(BoundaryError, match="made with"):
        door.noisy(lambda items: items["sum"].tensors, like, bound=bound, sigma=sigma)
    assert door.meter.cost.is_zero
    read = door.noisy(lambda items: items["sum"].tensors, like, bound=1.0, sigma=3.0)
    assert read["s"].tolist() == [1.0, 2.0]
    assert door.meter.cost == Cost.gaussian(2.0, unit="client")
