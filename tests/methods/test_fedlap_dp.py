"""FedLAP-DP: what a round costs, what leaves, and what the paper's theorem says beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import State
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody

NAME = "fedlap-dp"
SMALL: dict[str, Any] = {"paths": 2, "stops": 2, "batches": 3, "updates": 1}


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_plan_is_every_query_of_every_round(rounds: int) -> None:
    job = job_of(NAME, sigma=1.2, rounds=rounds, batch=6.0, **SMALL)
    assert job.plan() == Cost.gaussian(1.2, 0.25, times=12 * rounds)
    assert answer(NAME, sigma=1.2, rounds=rounds, batch=6.0, **SMALL).cost == Cost.gaussian(1.2, 0.25, times=12)


def test_a_radius_that_ends_a_path_early_is_charged_all_the_same() -> None:
    told = answer(NAME, sigma=1.2, batch=6.0, radius=1e-9, lr=0.5, **SMALL)
    assert told.cost == Cost.gaussian(1.2, 0.25, times=12)


def test_what_leaves_has_the_declared_shape_whatever_the_site_holds() -> None:
    for records in (None, nobody(), some_records(24, seed=2, classes=(0,))):
        told = answer(NAME, records=records, images=2)
        assert told.shapes() == told.job.shapes
        assert told.leaves["images"].tensors["y"].tolist() == [0, 0, 1, 1, 2, 2]


def test_what_it_remembers_is_what_it_sent() -> None:
    told = answer(NAME, images=2)
    assert told.stays["images"].digest == told.leaves["images"].digest


def test_carried_images_begin_where_the_last_round_ended() -> None:
    first = answer(NAME, images=2)
    again = answer(NAME, images=2, memory=first.stays, image_lr=1e-12, round=1)
    fresh = answer(NAME, images=2, memory=first.stays, image_lr=1e-12, round=1, start="noise")
    assert torch.allclose(again.leaves["images"].tensors["x"], first.leaves["images"].tensors["x"], atol=1e-6)
    assert not torch.allclose(fresh.leaves["images"].tensors["x"], first.leaves["images"].tensors["x"], atol=1e-2)


def test_the_server_moves_the_model_no_further_than_the_radius() -> None:
    job = job_of(NAME, images=2, radius=0.05, server_lr=0.01)
    start = job.method.init(job.settings, job.task, job.key)
    made = answer(NAME, images=2).leaves
    after = job.method.server(job.settings, job.task, State(0, start), {"site-0": made}, job.key)
    a, b = start["model"].tensors, after["model"].tensors
    moved = sum(float((a[k] - b[k]).double().square().sum()) for k in a) ** 0.5
    assert 0.0 < moved <= 0.05 + 1e-6


@pytest.mark.parametrize(
    "bad", [{"images": 0}, {"radius": 0.0}, {"clip": 0.0}, {"augment": ("mirror",)}, {"start": "public"}]
)
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(NAME, **bad)


def test_it_promises_a_guarantee_at_the_site() -> None:
    assert METHODS[NAME].guarantee == "site"
    assert METHODS["fedlap"].guarantee is None
