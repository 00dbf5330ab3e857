"""DP-FedAvg by hand: clipped per-record gradients over the expected batch, and noise that is what it is charged as."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import State
from prismfl.core.records import Records
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import BIAS, MEAN_GRADIENT, RECORDS, TASK, WEIGHT, ZERO, ask, model, one_step, same, settings

FREE: dict[str, Any] = {"sigma": 0.0, "clip": math.inf, "batch": 2.0}
NORM_0, NORM_1 = 1.0, math.sqrt(2.5)  # of the two records' gradients, weights and biases together


def test_without_noise_and_clip_it_is_fedavg_on_whole_batches() -> None:
    private = ask("dp-fedavg", {"model": model()}, steps=3, lr=0.1, **FREE)
    plain = ask("fedavg", {"model": model()}, epochs=3, batch=2, lr=0.1)
    assert same(private.leaves["model"].tensors, plain.leaves["model"].tensors)
    assert same(private.leaves["model"].tensors, one_step(one_step(one_step(ZERO, 0.1), 0.1), 0.1))


def test_each_record_is_clipped_before_the_sum() -> None:
    """The first record has norm 1 and stays; the second, of norm sqrt 2.5, is cut to 1."""
    told = ask("dp-fedavg", {"model": model()}, steps=1, lr=1.0, sigma=0.0, clip=NORM_0, batch=2.0)
    first = torch.tensor([[-0.5, 0.0], [0.5, 0.0]])
    second = torch.tensor([[0.0, 1.0], [0.0, -1.0]]) / NORM_1
    assert torch.allclose(told.leaves["model"].tensors[WEIGHT], -(first + second) / 2, atol=1e-5)
    assert torch.allclose(
        told.leaves["model"].tensors[BIAS], -(torch.tensor([-0.5, 0.5]) * (1 - 1 / NORM_1)) / 2, atol=1e-5
    )


def test_a_sum_is_divided_by_the_expected_batch_not_by_the_records_there_are() -> None:
    """Four declared records, two there: the step is half as long."""
    told = ask(
        "dp-fedavg", {"model": model()}, task=replace(TASK, records=4), steps=1, lr=1.0, **{**FREE, "batch": 4.0}
    )
    assert torch.allclose(told.leaves["model"].tensors[WEIGHT], -MEAN_GRADIENT / 2)


def test_the_noise_of_a_step_has_standard_deviation_lr_sigma_clip_over_batch() -> None:
    """Nothing but noise on empty records: the spread over many seeds is 0.5 * 3 * 0.2 / 2."""
    none = Records(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    drawn = [
        ask("dp-fedavg", {"model": model()}, records=none, noise=i, steps=1, lr=0.5, sigma=3.0, clip=0.2, batch=2.0)
        for i in range(60)
    ]
    numbers = torch.cat([told.leaves["model"].tensors[k].flatten() for told in drawn for k in ZERO])
    assert float(numbers.std()) == pytest.approx(0.5 * 3.0 * 0.2 / 2, rel=0.15)
    assert abs(float(numbers.mean())) < 4 * 0.15 / math.sqrt(len(numbers))


def test_under_huge_noise_the_answer_hardly_depends_on_the_data() -> None:
    other = Records(RECORDS.x.flip(0) * 3, RECORDS.y)
    one, two = (
        ask("dp-fedavg", {"model": model()}, records=r, steps=1, lr=1.0, sigma=1e6, clip=1.0, batch=2.0)
        for r in (RECORDS, other)
    )
    gap = (one.leaves["model"].tensors[WEIGHT] - two.leaves["model"].tensors[WEIGHT]).norm()
    assert float(gap) <= 1.0 + 1e3  # at most a clip a record, and the grid
    assert float(one.leaves["model"].tensors[WEIGHT].norm()) > 1e5


def test_two_sites_with_the_same_records_have_noise_of_their_own() -> None:
    one, two = (ask("dp-fedavg", {"model": model()}, noise=n, sigma=1.0, steps=1) for n in (1, 2))
    assert one.leaves["model"].digest != two.leaves["model"].digest


@pytest.mark.parametrize(("rounds", "steps", "batch", "rate"), [(1, 1, 1.0, 0.5), (3, 4, 1.0, 0.5), (2, 5, 9.0, 1.0)])
def test_the_plan_is_every_step_of_every_round(rounds: int, steps: int, batch: float, rate: float) -> None:
    cfg = settings("dp-fedavg", sigma=1.5, rounds=rounds, steps=steps, batch=batch)
    assert METHODS["dp-fedavg"].plan(cfg, TASK) == Cost.gaussian(1.5, rate, times=rounds * steps)


def test_the_meter_says_what_one_round_was_planned_to_cost() -> None:
    told = ask("dp-fedavg", {"model": model()}, sigma=1.5, steps=4, batch=1.0)
    assert told.cost == Cost.gaussian(1.5, 0.5, times=4)


def test_no_noise_is_no_guarantee() -> None:
    assert not METHODS["dp-fedavg"].plan(settings("dp-fedavg", sigma=0.0), TASK).private


def test_an_unsolved_sigma_is_an_error_not_a_default() -> None:
    with pytest.raises(ValueError, match="Expected sigma to be resolved before the run, got None"):
        METHODS["dp-fedavg"].plan(settings("dp-fedavg"), TASK)


def test_an_update_that_no_steps_can_reach_is_told_from_an_honest_one() -> None:
    cfg = settings("dp-fedavg", sigma=1.0, steps=2, batch=2.0, clip=0.1, lr=0.5)
    possible, state = METHODS["dp-fedavg"].possible, State(0, {"model": model()})
    assert possible is not None
    honest = ask("dp-fedavg", {"model": model()}, sigma=1.0, steps=2, batch=2.0, clip=0.1, lr=0.5)
    assert possible(cfg, TASK, state, "site-0", honest.leaves) is None
    why = possible(cfg, TASK, state, "site-0", {"model": model(1e6)})
    assert why is not None
    assert why.startswith("its update is 2e+06 long, and 2 steps reach")


@pytest.mark.parametrize("bad", [{"clip": 0.0}, {"sigma": -1.0}, {"steps": 0}, {"batch": 0.0}, {"lr": 0.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("dp-fedavg", **bad)
