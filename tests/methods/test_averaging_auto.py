"""The rule for dp-fedavg and its kin: monotone, never beyond what was given, and within the budget."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prismfl.core.method import Wanted
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.methods.averaging import auto
from prismfl.privacy import account
from prismfl.runs import planning, simulate
from prismfl.runs.config import RunConfig

KIN = ("dp-fedavg", "dp-fedprox", "dp-central", "dp-fedavg-client")
BY_RECORD = KIN[:3]
TASK = Task("digits", (1, 8, 8), tuple("0123456789"), tuple(f"site-{i}" for i in range(5)), 287, model="convnet:32")


def choose(name: str, task: Task = TASK, epsilon: float = 1.0, **given: Any) -> dict[str, Any]:
    method = METHODS[name]
    assert method.auto is not None
    task = replace(task, sites=task.sites[:1], records=5 * task.records) if method.pooled else task
    found = method.auto(Wanted(given, task, epsilon))
    assert found.words
    assert not set(found.settings) & set(given)
    method.settings(**{**found.settings, **given})  # they are settings of the method, and within its limits
    return {**found.settings, **given}


def way(found: dict[str, Any]) -> float:
    return float(found["rounds"] * found["steps"] * found["clip"] * found["lr"])


@pytest.mark.parametrize("name", BY_RECORD)
def test_more_noise_never_means_more_steps_nor_a_longer_way(name: str) -> None:
    by_epsilon = [choose(name, epsilon=e) for e in (8.0, 1.0, 0.3)]
    by_records = [choose(name, replace(TASK, records=n)) for n in (2_000, 200)]
    by_network = [choose(name, replace(TASK, model=m)) for m in ("logreg", "convnet:32")]
    for found in (by_epsilon, by_records, by_network):
        ways, steps = [way(one) for one in found], [one["rounds"] * one["steps"] for one in found]
        assert all(a >= 0.99 * b for a, b in pairwise(ways))
        assert ways[0] > ways[-1]
        assert steps == sorted(steps, reverse=True)


def test_more_sites_have_less_noise_and_go_further() -> None:
    many = replace(TASK, sites=tuple(map(str, range(50))))
    assert way(choose("dp-fedavg", many)) > way(choose("dp-fedavg"))


@pytest.mark.parametrize("name", KIN)
@pytest.mark.parametrize(("records", "epsilon"), [(1, 5.0), (40, 0.2), (287, 1.0), (20_000, 5.0)])
def test_the_budget_is_met_and_the_rate_is_one_at_most(name: str, records: int, epsilon: float) -> None:
    method = METHODS[name]
    task = replace(TASK, records=records, sites=TASK.sites[:1] if method.pooled else TASK.sites)
    assert method.auto is not None
    found = dict(method.auto(Wanted({}, task, epsilon)).settings)
    if method.guarantee == "site":
        assert 0 < found["batch"] <= records
    config = RunConfig(method=name, epsilon=epsilon, settings=found)
    settings = planning.resolve(config, task, method)
    assert 0.98 * epsilon <= account.epsilon(method.plan(settings, task), task.delta) <= epsilon


@pytest.mark.parametrize("name", BY_RECORD)
@pytest.mark.parametrize("given", [{"clip": 1.0}, {"lr": 0.5}, {"clip": 3.0, "lr": 7.0}, {"batch": 16}, {"steps": 40}])
def test_what_is_given_is_kept_and_the_rest_fits_it(name: str, given: dict[str, Any]) -> None:
    found = choose(name, **given)
    plain = choose(name)
    if len(given) == 1 and ("clip" in given or "lr" in given):
        assert way(found) == pytest.approx(way(plain), rel=0.02)
    if "steps" in given and name != "dp-central":
        assert found["rounds"] == auto.STEPS // 40


def test_given_rounds_share_the_steps() -> None:
    assert choose("dp-fedavg", rounds=10)["steps"] == auto.STEPS // 10
    assert choose("dp-fedavg", rounds=200)["steps"] == 1


@pytest.mark.parametrize("given", [{}, {"mu": 1.0}, {"mu": 0.001}])
def test_a_proximal_step_never_throws_beyond_its_start(given: dict[str, Any]) -> None:
    found = choose("dp-fedprox", **given)
    assert found["mu"] * found["lr"] <= 1.01 * auto.PULL


def test_clients_that_are_many_go_further() -> None:
    few, many = (choose("dp-fedavg-client", replace(TASK, sites=tuple(map(str, range(n))))) for n in (50, 5_000))
    assert few["rounds"] * few["clip"] < many["rounds"] * many["clip"]
    assert choose("dp-fedavg-client", clip=0.25)["clip"] == 0.25


def test_a_smaller_network_is_named_where_the_noise_is_long() -> None:
    method = METHODS["dp-fedavg"]
    for task, warned in ((TASK, True), (replace(TASK, model="logreg"), False), (replace(TASK, records=20_000), False)):
        settings = planning.resolve(RunConfig(epsilon=1.0, settings=choose("dp-fedavg", task)), task, method)
        said = auto.record_advice(settings, task)
        assert bool(said) is warned
        assert all("--model logreg has 650" in line for line in said)


@pytest.mark.parametrize("name", ["dp-fedavg", "dp-central"])
def test_the_ledger_holds_what_was_planned_for_the_chosen_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[str] = []
    config = RunConfig(
        method=name, data="digits", model="logreg", subset=100, epsilon=2.0, tuning="auto", out=str(tmp_path / "run"),
        settings={"rounds": 1, "steps": 3},
    )  # fmt: skip
    planned = planning.plan(config)
    result = simulate.run(config, tell=told.append)
    assert len(told) == 3
    assert (result.epsilon, result.sigma) == (planned.epsilon, planned.sigma)
    assert result.epsilon == pytest.approx(2.0, rel=0.02)
    assert "lr" in (tmp_path / "run" / "choices.json").read_text()
