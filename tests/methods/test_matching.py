"""Gradient matching by hand: the distance, the queries of a schedule, a walk inside a ball."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.methods.landscape.matching import Criterion, Matcher, Schedule, approximate, detectable, length, walk
from prismfl.nets.classifier import Params, build
from prismfl.rng import Key


def schedule(**changes: float) -> Schedule:
    plain = {"paths": 1, "stops": 1, "batches": 1, "updates": 1, "model_steps": 0}
    rates = {"radius": math.inf, "image_lr": 0.1, "momentum": 0.0, "lr": 0.1}
    return Schedule(**{**plain, **rates, **changes})  # type: ignore[arg-type]


def test_rows_that_point_the_same_way_are_no_distance_apart() -> None:
    a = {"w": torch.tensor([[1.0, 0.0], [0.0, 2.0]])}
    assert float(Criterion().distance(a, {"w": 5.0 * a["w"]}, ["w"])) == pytest.approx(0.0, abs=1e-5)


def test_a_right_angle_is_one_and_the_opposite_is_two() -> None:
    a = {"w": torch.tensor([[1.0, 0.0]]), "b": torch.tensor([1.0, 0.0])}
    b = {"w": torch.tensor([[0.0, 3.0]]), "b": torch.tensor([-2.0, 0.0])}
    assert float(Criterion().distance(a, b, ["w"])) == pytest.approx(1.0)
    assert float(Criterion().distance(a, b, ["w", "b"])) == pytest.approx(3.0, abs=1e-5)


def test_rows_are_averaged_and_layers_added() -> None:
    a = {"w": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}
    b = {"w": torch.tensor([[1.0, 0.0], [0.0, 1.0]])}
    assert float(Criterion().distance(a, b, ["w"])) == pytest.approx(0.5, abs=1e-5)


def test_the_squared_error_is_weighted() -> None:
    a, b = {"w": torch.tensor([[1.0, 2.0]])}, {"w": torch.tensor([[0.0, 0.0]])}
    assert float(Criterion(cosine=False, mse=0.5).distance(a, b, ["w"])) == pytest.approx(2.5)


@pytest.mark.parametrize(("paths", "stops", "batches"), [(1, 1, 1), (2, 3, 4)])
def test_a_schedule_asks_paths_times_stops_times_batches(paths: int, stops: int, batches: int) -> None:
    plan = schedule(paths=paths, stops=stops, batches=batches)
    assert plan.queries == paths * stops * batches
    asked = []
    classifier, params = build("logreg", (2,), 2, key=Key.seed(0))

    def target(at: Params, view: object) -> Params:
        asked.append(at)
        return at

    _, count = approximate(
        Matcher(classifier), params, x=torch.randn(4, 2), y=torch.tensor([0, 0, 1, 1]), target=target, schedule=plan
    )
    assert count == len(asked) == plan.queries


def test_a_path_that_leaves_the_ball_asks_no_more() -> None:
    """Radius 0 is left before the first stop: no question at all."""
    classifier, params = build("logreg", (2,), 2, key=Key.seed(0))
    x = torch.randn(2, 2)
    made, asked = approximate(
        Matcher(classifier),
        params,
        x=x,
        y=torch.tensor([0, 1]),
        target=lambda at, view: at,
        schedule=schedule(stops=5, radius=0.0),
    )
    assert asked == 0
    assert torch.equal(made, x)


def test_images_follow_the_gradient_of_the_distance_with_momentum() -> None:
    classifier, params = build("logreg", (2,), 2, key=Key.seed(0))
    matcher, x, y = Matcher(classifier), torch.tensor([[1.0, 0.5], [-0.2, 1.0]]), torch.tensor([0, 1])
    wanted = {"1.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "1.bias": torch.tensor([1.0, -1.0])}
    made, _ = approximate(
        matcher, params, x=x, y=y, target=lambda at, view: wanted, schedule=schedule(updates=2, momentum=0.5)
    )
    first = matcher.image_gradient(params, x=x, y=y, target=wanted)
    second = matcher.image_gradient(params, x=x - 0.1 * first, y=y, target=wanted)
    assert torch.allclose(made, x - 0.1 * first - 0.1 * (0.5 * first + second), atol=1e-6)


def test_the_distance_of_two_models() -> None:
    a, b = {"w": torch.tensor([3.0]), "b": torch.tensor([0.0])}, {"w": torch.tensor([0.0]), "b": torch.tensor([4.0])}
    assert length(a, b) == 5.0


def test_a_walk_stops_before_the_step_that_would_leave() -> None:
    """Steps of 1 inside a ball of 2.5: two are taken."""
    done = walk(lambda p: {"w": torch.tensor([-1.0])}, {"w": torch.zeros(1)}, lr=1.0, radius=2.5, steps=9)
    assert (float(done.params["w"]), done.distance, done.steps) == (2.0, 2.0, 2)


def test_a_walk_takes_the_steps_that_it_owes() -> None:
    owed = walk(lambda p: {"w": torch.tensor([-1.0])}, {"w": torch.zeros(1)}, lr=1.0, radius=0.5, steps=9, at_least=3)
    assert owed.steps == 3


def test_a_walk_ends_where_numbers_do() -> None:
    done = walk(lambda p: {"w": torch.tensor([math.inf])}, {"w": torch.zeros(1)}, lr=1.0, radius=9.0, steps=9)
    assert (done.steps, float(done.params["w"])) == (0, 0.0)


def test_a_visitor_sees_every_step() -> None:
    seen: list[float] = []
    walk(
        lambda p: {"w": torch.tensor([-1.0])},
        {"w": torch.zeros(1)},
        lr=0.5,
        radius=math.inf,
        steps=3,
        visit=lambda p, d: seen.append(d),
    )
    assert seen == [0.5, 1.0, 1.5]


def test_a_bias_before_a_norm_of_its_own_channel_says_nothing() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.GroupNorm(2, 2), torch.nn.Conv2d(2, 2, 3))
    assert detectable(module) == ["0.weight", "1.weight", "1.bias", "2.weight", "2.bias"]
    shared = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.GroupNorm(1, 2))
    assert "0.bias" in detectable(shared)
