"""FedAvg by hand: local steps on the exact records, an unweighted mean, no guarantee."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.records import Records
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import (
    BIAS,
    KEY,
    MEAN_GRADIENT,
    RECORDS,
    TASK,
    WEIGHT,
    ZERO,
    ask,
    model,
    one_step,
    same,
    serve,
    settings,
)


def test_one_epoch_of_one_batch_is_one_gradient_step() -> None:
    told = ask("fedavg", {"model": model()}, epochs=1, batch=2, lr=0.1)
    assert same(told.leaves["model"].tensors, {WEIGHT: -0.1 * MEAN_GRADIENT, BIAS: torch.zeros(2)})
    assert told.stays == {}


def test_epochs_follow_each_other() -> None:
    told = ask("fedavg", {"model": model()}, epochs=3, batch=2, lr=0.1)
    expected = one_step(one_step(one_step(ZERO, 0.1), 0.1), 0.1)
    assert same(told.leaves["model"].tensors, expected)


@pytest.mark.parametrize(("round", "rate"), [(0, 0.2), (5, 0.1), (10, 0.0)])
def test_the_rate_falls_along_half_a_cosine_of_the_rounds(round: int, rate: float) -> None:
    told = ask("fedavg", {"model": model()}, epochs=1, batch=2, lr=0.2, rounds=10, round=round)
    assert same(told.leaves["model"].tensors, {WEIGHT: -rate * MEAN_GRADIENT, BIAS: torch.zeros(2)})


def test_batches_of_one_are_two_steps_and_not_one() -> None:
    told = ask("fedavg", {"model": model()}, epochs=1, batch=1, lr=0.1)
    first, second = (Records(RECORDS.x[[i]], RECORDS.y[[i]]) for i in (0, 1))
    orders = [one_step(one_step(ZERO, 0.1, a), 0.1, b) for a, b in ((first, second), (second, first))]
    assert any(same(told.leaves["model"].tensors, expected) for expected in orders)


def test_a_site_without_records_sends_back_what_it_got() -> None:
    none = Records(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    told = ask("fedavg", {"model": model(0.5)}, records=none)
    assert same(told.leaves["model"].tensors, model(0.5).tensors)


def test_the_server_takes_the_plain_mean() -> None:
    inbox = {f"site-{i}": {"model": model(w)} for i, w in enumerate((1.0, 2.0, 3.0))}
    assert same(serve("fedavg", {"model": model()}, inbox)["model"].tensors, model(2.0).tensors)


def test_one_site_of_three_cannot_drag_the_mean_away() -> None:
    """Lengths 2, 4 and 400 (four equal weights): the median is 4, so the last counts as 8, and its weights as 4."""
    inbox = {f"site-{i}": {"model": model(w)} for i, w in enumerate((1.0, 2.0, 200.0))}
    kept = serve("fedavg", {"model": model()}, inbox)["model"].tensors[WEIGHT]
    assert torch.allclose(kept, torch.full((2, 2), (1.0 + 2.0 + 4.0) / 3))
    plain = serve("fedavg", {"model": model()}, inbox, aggregate="mean")["model"].tensors[WEIGHT]
    assert torch.allclose(plain, torch.full((2, 2), 203.0 / 3))


def test_updates_are_measured_from_the_model_that_was_sent() -> None:
    """Far from zero, three updates of length 2 are all alike: none is shortened."""
    inbox = {f"site-{i}": {"model": model(100.0 + w)} for i, w in enumerate((-1.0, 1.0, 1.0))}
    kept = serve("fedavg", {"model": model(100.0)}, inbox)["model"].tensors[WEIGHT]
    assert torch.allclose(kept, torch.full((2, 2), 100.0 + 1.0 / 3))


def test_the_model_starts_from_the_key_and_nothing_else() -> None:
    method, cfg = METHODS["fedavg"], settings("fedavg")
    one, again, other = (method.init(cfg, TASK, key)["model"].digest for key in (KEY, KEY, KEY.child("x")))
    assert one == again != other


def test_it_has_no_guarantee_and_says_so() -> None:
    assert METHODS["fedavg"].guarantee is None
    assert METHODS["fedavg"].plan(settings("fedavg"), TASK) == Cost.non_private()
    assert ask("fedavg", {"model": model()}).cost == Cost.non_private()


def test_what_leaves_has_the_declared_shape() -> None:
    declared = METHODS["fedavg"].shapes(settings("fedavg"), TASK)
    assert declared == {"model": {WEIGHT: ("float32", (2, 2)), BIAS: ("float32", (2,))}}
    assert ask("fedavg", {"model": model()}).leaves["model"].shapes() == declared["model"]


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"mu": -1.0}, {"aggregate": "max"}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("fedavg", **bad)


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="learning_rate"):
        settings("fedavg", learning_rate=0.1)
