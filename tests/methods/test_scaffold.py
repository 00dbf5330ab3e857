"""SCAFFOLD by hand: control variates that correct local steps and add up at the server."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.payloads import Gradient
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import BIAS, KEY, MEAN_GRADIENT, TASK, WEIGHT, ask, model, same, serve, settings

ONES = {WEIGHT: torch.ones(2, 2), BIAS: torch.ones(2)}


def control(value: float) -> Gradient:
    return Gradient({k: value * v for k, v in ONES.items()})


def test_the_first_round_is_a_plain_step_and_the_control_is_its_gradient() -> None:
    told = ask("scaffold", {"model": model(), "control": control(0.0)}, epochs=1, batch=2, lr=0.1)
    gradient = {WEIGHT: MEAN_GRADIENT, BIAS: torch.zeros(2)}
    assert same(told.leaves["model"].tensors, {k: -0.1 * v for k, v in gradient.items()})
    assert same(told.leaves["control"].tensors, gradient)
    assert same(told.stays["control"].tensors, gradient)


def test_a_step_is_corrected_by_the_common_less_the_own_control() -> None:
    """Own 1 and common 3: each number of the gradient gains 2, hence each weight loses 0.2."""
    told = ask(
        "scaffold",
        {"model": model(), "control": control(3.0)},
        memory={"control": control(1.0)},
        epochs=1,
        batch=2,
        lr=0.1,
    )
    assert same(told.leaves["model"].tensors, {WEIGHT: -0.1 * (MEAN_GRADIENT + 2.0), BIAS: torch.full((2,), -0.2)})


def test_the_new_control_is_the_mean_gradient_of_the_steps_whatever_the_controls_were() -> None:
    """own - common + (start - end) / (steps lr): with one step the correction cancels and the gradient is left."""
    told = ask(
        "scaffold",
        {"model": model(), "control": control(3.0)},
        memory={"control": control(1.0)},
        epochs=1,
        batch=2,
        lr=0.1,
    )
    assert same(told.stays["control"].tensors, {WEIGHT: MEAN_GRADIENT, BIAS: torch.zeros(2)}, tol=1e-5)
    assert same(told.leaves["control"].tensors, {WEIGHT: MEAN_GRADIENT - 1.0, BIAS: torch.full((2,), -1.0)}, tol=1e-5)


def test_the_control_itself_never_leaves() -> None:
    assert set(METHODS["scaffold"].leaves) == {"model", "control"}
    told = ask("scaffold", {"model": model(), "control": control(0.0)}, memory={"control": control(7.0)}, lr=0.1)
    assert not same(told.leaves["control"].tensors, told.stays["control"].tensors)


def test_the_servers_control_moves_by_the_mean_change_times_the_part_of_sites_that_answered() -> None:
    inbox = {site: {"model": model(), "control": control(w)} for site, w in (("site-0", 1.0), ("site-1", 2.0))}
    after = serve("scaffold", {"model": model(), "control": control(10.0)}, inbox)["control"]
    assert same(after.tensors, control(10.0 + 2 / 3 * 1.5).tensors)


def test_where_all_sites_answer_the_controls_sum_is_kept() -> None:
    """With every site, the common control stays the mean of the sites' own ones."""
    own = {"site-0": 1.0, "site-1": 2.0, "site-2": 6.0}
    changes = {"site-0": 0.5, "site-1": -0.25, "site-2": 0.125}
    inbox = {site: {"model": model(), "control": control(c)} for site, c in changes.items()}
    after = serve("scaffold", {"model": model(), "control": control(3.0)}, inbox)["control"].tensors[BIAS]
    assert float(after[0]) == pytest.approx(sum(own[s] + changes[s] for s in own) / 3)


def test_the_server_begins_with_a_control_of_zero() -> None:
    items = METHODS["scaffold"].init(settings("scaffold"), TASK, KEY)
    assert same(items["control"].tensors, control(0.0).tensors)
    assert items["model"].digest == METHODS["fedavg"].init(settings("fedavg"), TASK, KEY)["model"].digest


def test_it_has_no_guarantee_and_declares_both_items() -> None:
    assert METHODS["scaffold"].plan(settings("scaffold"), TASK) == Cost.non_private()
    declared = METHODS["scaffold"].shapes(settings("scaffold"), TASK)
    told = ask("scaffold", {"model": model(), "control": control(0.0)})
    assert {k: p.shapes() for k, p in told.leaves.items()} == declared


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch": 0}, {"lr": -1.0}, {"mu": 0.1}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("scaffold", **bad)
