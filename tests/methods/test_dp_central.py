"""DP-SGD on pooled records by hand: DP-FedAvg's steps, once, in one place."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.records import Records
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import RECORDS, TASK, WEIGHT, ZERO, ask, model, one_step, same, serve, settings

POOLED = replace(TASK, sites=("site-0",), records=4)
DOUBLED = Records(torch.cat([RECORDS.x, RECORDS.x]), torch.cat([RECORDS.y, RECORDS.y]))


def test_without_noise_and_clip_it_is_gradient_descent_on_all_records() -> None:
    told = ask(
        "dp-central",
        {"model": model()},
        task=POOLED,
        records=DOUBLED,
        steps=2,
        lr=0.3,
        sigma=0.0,
        clip=math.inf,
        batch=4.0,
    )
    assert same(told.leaves["model"].tensors, one_step(one_step(ZERO, 0.3), 0.3))


def test_its_one_model_is_the_outcome() -> None:
    inbox = {"site-0": {"model": model(0.7, 0.1)}}
    assert same(serve("dp-central", {"model": model()}, inbox)["model"].tensors, model(0.7, 0.1).tensors)


def test_the_plan_is_its_steps_at_the_rate_of_the_pool() -> None:
    cfg = settings("dp-central", sigma=0.9, steps=11, batch=1.0)
    assert METHODS["dp-central"].plan(cfg, POOLED) == Cost.gaussian(0.9, 0.25, times=11)
    told = ask("dp-central", {"model": model()}, task=POOLED, records=DOUBLED, sigma=0.9, steps=11, batch=1.0)
    assert told.cost == Cost.gaussian(0.9, 0.25, times=11)


def test_it_runs_where_all_records_are() -> None:
    assert METHODS["dp-central"].pooled
    assert not METHODS["dp-fedavg"].pooled


def test_it_is_dp_fedavg_with_one_site_and_one_round() -> None:
    common: dict[str, Any] = {"sigma": 1.1, "steps": 3, "batch": 2.0, "clip": 0.4, "lr": 0.2}
    one = ask("dp-central", {"model": model()}, task=POOLED, records=DOUBLED, **common)
    two = ask("dp-fedavg", {"model": model()}, task=POOLED, records=DOUBLED, **common)
    assert one.leaves["model"].digest == two.leaves["model"].digest


def test_a_record_of_any_size_moves_a_step_by_no_more_than_the_clip() -> None:
    huge = Records(torch.cat([RECORDS.x, torch.tensor([[1e20, -1e20]])]), torch.tensor([0, 1, 0]))
    common: dict[str, Any] = {"task": POOLED, "steps": 1, "lr": 1.0, "sigma": 0.0, "clip": 0.5, "batch": 4.0}
    one, two = (
        ask("dp-central", {"model": model()}, records=r, **common).leaves["model"].tensors for r in (RECORDS, huge)
    )
    gap = math.sqrt(sum(float((one[k] - two[k]).double().square().sum()) for k in one))
    assert gap == pytest.approx(0.5 / 4, rel=1e-3)
    assert WEIGHT in one


@pytest.mark.parametrize("bad", [{"rounds": 2}, {"steps": 0}, {"batch": -1.0}])
def test_it_is_one_release_of_at_least_one_step(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("dp-central", **bad)
