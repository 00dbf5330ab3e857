"""The rule for methods that share one noisy gradient a round."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from prismfl.core.method import Wanted
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.methods.averaging.auto import LONGEST
from prismfl.methods.gradients import auto
from prismfl.runs import planning
from prismfl.runs.config import RunConfig

KIN = ("ldp-fedsgd", "fedem-dp")
TASK = Task("digits", (1, 8, 8), tuple("0123456789"), tuple(f"site-{i}" for i in range(5)), 287, model="logreg")


def choose(name: str, task: Task = TASK, epsilon: float = 1.0, **given: Any) -> dict[str, Any]:
    found = auto.by_gradient(Wanted(given, task, epsilon))
    METHODS[name].settings(**{**found.settings, **given})
    assert not set(found.settings) & set(given)
    return {**found.settings, **given}


def way(found: dict[str, Any]) -> float:
    return float(found["rounds"] * found["clip"] * found["lr"])


@pytest.mark.parametrize("name", KIN)
def test_more_noise_never_means_a_longer_way(name: str) -> None:
    by_epsilon = [way(choose(name, epsilon=e)) for e in (8.0, 1.0, 0.3)]
    by_records = [way(choose(name, replace(TASK, records=n))) for n in (2_000, 200)]
    for ways in (by_epsilon, by_records):
        assert all(a >= 0.99 * b for a, b in pairwise(ways))
        assert ways[0] > ways[-1]


def test_a_rate_that_falls_along_a_cosine_goes_half_as_far() -> None:
    many = replace(TASK, records=100_000)
    assert way(choose("ldp-fedsgd", many, 8.0)) == pytest.approx(2 * LONGEST, rel=0.02)


def test_adam_keeps_its_own_rate_where_it_is_given() -> None:
    assert not {"lr", "clip"} & set(choose("ldp-fedsgd", optimiser="adam"))


@pytest.mark.parametrize("given", [{"clip": 1.0}, {"lr": 0.5}, {"batch": 16.0}, {"rounds": 7}])
def test_what_is_given_is_kept_and_the_rest_fits_it(given: dict[str, Any]) -> None:
    found = choose("ldp-fedsgd", **given)
    if "batch" not in given and "rounds" not in given:
        assert way(found) == pytest.approx(way(choose("ldp-fedsgd")), rel=0.02)


def test_a_network_that_pools_everything_away_gives_way() -> None:
    wide = replace(TASK, model="convnet:32", records=1_000_000)
    assert auto.by_gradient(Wanted({}, wide, 8.0, free_model=True)).model == "mlp"
    assert auto.by_gradient(Wanted({}, replace(wide, shape=(1, 28, 28)), 8.0, free_model=True)).model is None
    assert auto.by_gradient(Wanted({}, wide, 8.0)).model is None  # the user's own network stays


@pytest.mark.parametrize("name", KIN)
def test_a_drowned_run_says_so_and_a_clear_one_does_not(name: str) -> None:
    method = METHODS[name]
    for records, epsilon, drowned in ((20, 0.2, True), (2_000, 3.0, False)):
        task = replace(TASK, records=records)
        config = RunConfig(epsilon=epsilon, settings=dict(auto.by_gradient(Wanted({}, task, epsilon)).settings))
        said = planning.warnings_of(config, task, planning.resolve(config, task, method), method)
        assert any("drowns the gradients" in line for line in said) is drowned


def test_laplace_noise_drowns_sooner() -> None:
    settings: Any = METHODS["ldp-fedsgd"].settings
    facts = {"rounds": 10, "batch": 287.0, "sigma": 5.0}
    assert auto.advice(settings(**facts, kind="laplace"), TASK)
    assert not auto.advice(settings(**facts), TASK)
