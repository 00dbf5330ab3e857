"""Training loops by hand: a cosine, a step, a mean in double precision, momentum."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.nets.classifier import Classifier, Params, build
from prismfl.nets.training import average, cosine, descend, fit, step
from prismfl.rng import Key

X = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
Y = torch.tensor([0, 1])


def start() -> tuple[Classifier, Params]:
    classifier, params = build("logreg", (2,), 2, key=Key.seed(0))
    return classifier, {k: torch.zeros_like(v) for k, v in params.items()}


@pytest.mark.parametrize(("at", "rate"), [(0, 2.0), (5, 1.0), (10, 0.0)])
def test_a_rate_falls_along_half_a_cosine(at: int, rate: float) -> None:
    assert cosine(2.0, at, 10) == pytest.approx(rate, abs=1e-12)


@given(st.integers(1, 50))
def test_a_rate_never_rises(steps: int) -> None:
    rates = [cosine(1.0, i, steps) for i in range(steps + 1)]
    assert all(a >= b for a, b in itertools.pairwise(rates))


def test_a_step_leaves_its_input_alone() -> None:
    before = {"w": torch.tensor([1.0])}
    assert float(step(before, {"w": torch.tensor([4.0])}, 0.25)["w"]) == 0.0
    assert float(before["w"]) == 1.0


def test_descent_takes_the_gradient_where_it_is() -> None:
    """w' = w - 0.5 w: halved each time."""
    seen: list[int] = []

    def gradient(params: Params, i: int) -> Params:
        seen.append(i)
        return {"w": params["w"]}

    found = descend({"w": torch.tensor([8.0])}, gradient, steps=3, lr=0.5)
    assert float(found["w"]) == 1.0
    assert seen == [0, 1, 2]


def test_a_mean_is_taken_in_double_precision() -> None:
    """In single precision 1e8 + 1 is 1e8."""
    models = [{"w": torch.tensor([v])} for v in (1e8, 1.0, -1e8, 1.0)]
    assert float(average(models)["w"]) == 0.5
    assert average(models)["w"].dtype == torch.float32


def test_a_mean_takes_one_model_at_a_time() -> None:
    assert float(average({"w": torch.tensor([float(i)])} for i in range(5))["w"]) == 2.0


def test_one_step_of_fit_is_a_gradient_step() -> None:
    classifier, params = start()
    found = fit(classifier, params, x=X, y=Y, epochs=1, batch=2, lr=0.1, key=Key.seed(1))
    assert torch.allclose(found["1.weight"], -0.1 * torch.tensor([[-0.25, 0.5], [0.25, -0.5]]))


def test_the_second_step_has_momentum_and_a_smaller_rate() -> None:
    classifier, params = start()
    found = fit(classifier, params, x=X, y=Y, epochs=2, batch=2, lr=0.1, key=Key.seed(1))
    first = classifier.gradient(params, X, Y)
    once = step(params, first, 0.1)
    second = classifier.gradient(once, X, Y)
    expected = step(once, {k: 0.9 * first[k] + second[k] for k in first}, 0.05)  # the cosine after one of two steps
    assert all(torch.allclose(found[k], expected[k], atol=1e-6) for k in expected)


def test_without_a_schedule_the_rate_stays() -> None:
    classifier, params = start()
    one, two = (
        fit(classifier, params, x=X, y=Y, epochs=2, batch=2, lr=0.1, key=Key.seed(1), schedule=s)["1.weight"]
        for s in (True, False)
    )
    assert float(two.norm()) > float(one.norm())


def test_soft_labels_may_stand_for_hard_ones() -> None:
    classifier, params = start()
    hard, soft = (
        fit(classifier, params, x=X, y=y, epochs=3, batch=2, lr=0.1, key=Key.seed(1)) for y in (Y, torch.eye(2)[Y])
    )
    assert all(torch.allclose(hard[k], soft[k], atol=1e-6) for k in hard)


def test_adam_moves_each_weight_by_its_rate_at_first() -> None:
    classifier, params = start()
    found = fit(classifier, params, x=X, y=Y, epochs=1, batch=2, lr=0.1, key=Key.seed(1), optimiser="adam")
    assert found["1.weight"].abs().flatten().tolist() == pytest.approx([0.1] * 4, rel=1e-4)


def test_weights_decay_where_there_is_nothing_to_learn() -> None:
    classifier, params = start()
    ones = {k: torch.ones_like(v) for k, v in params.items()}
    found = fit(
        classifier, ones, x=torch.zeros(2, 2), y=Y, epochs=1, batch=2, lr=0.1, key=Key.seed(1), weight_decay=0.5
    )
    assert found["1.weight"].flatten().tolist() == pytest.approx([0.95] * 4)


def test_no_records_leave_the_weights() -> None:
    classifier, params = start()
    found = fit(
        classifier, params, x=torch.zeros(0, 2), y=torch.zeros(0).long(), epochs=3, batch=2, lr=0.1, key=Key.seed(1)
    )
    assert found is params


def test_augmentation_has_a_stream_of_its_own() -> None:
    """An augmentation that draws and changes nothing does not change the order of the batches."""

    def idle(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        torch.rand(3, generator=g)
        return x

    classifier, params = start()
    plain, drawn = (
        fit(classifier, params, x=X, y=Y, epochs=3, batch=1, lr=0.1, key=Key.seed(1), augment=a)["1.weight"]
        for a in (None, idle)
    )
    assert torch.equal(plain, drawn)
