"""The rule for images that are fitted to noisy answers: never more questions at more noise, and few of them here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismfl.core.method import Wanted
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.methods.landscape import auto
from prismfl.runs import planning, simulate
from prismfl.runs.config import RunConfig

KIN = ("psg", "psg-sites", "fedlap-dp", "feddm-dp")
TASK = Task("own", (1, 16, 16), tuple("0123456789"), tuple(f"site-{i}" for i in range(5)), 287, model="convnet:32")


def choose(name: str, task: Task = TASK, epsilon: float = 1.0, **given: Any) -> Any:
    method = METHODS[name]
    assert method.auto is not None
    found = method.auto(Wanted(given, task, epsilon))
    assert not set(found.settings) & set(given)
    return method.settings(**{**found.settings, **given})


@pytest.mark.parametrize("name", KIN)
def test_more_noise_never_means_more_questions_nor_more_work(name: str) -> None:
    for plans in (
        [choose(name, replace(TASK, records=20_000), e) for e in (0.1, 1.0, 8.0)],
        [choose(name, replace(TASK, records=n)) for n in (50, 5_000, 500_000)],
    ):
        asked = [auto._count(cfg) for cfg in plans]
        assert asked == sorted(asked)
        assert asked[0] < asked[-1] <= auto.MOST
        assert all(auto._count(cfg) * cfg.updates <= 2 * auto.WORK for cfg in plans)


@pytest.mark.parametrize("name", KIN)
@pytest.mark.parametrize("given", [{"images": 3}, {"updates": 2}, {"batch": 7.0}, {"rounds": 1}, {"image_lr": 0.5}])
def test_what_is_given_is_kept(name: str, given: dict[str, Any]) -> None:
    found = choose(name, **given)
    assert all(getattr(found, key) == value for key, value in given.items())


@pytest.mark.parametrize("name", KIN)
def test_few_records_are_asked_about_a_linear_model_and_many_about_the_network(name: str) -> None:
    method = METHODS[name]
    assert method.auto is not None
    assert method.auto(Wanted({}, TASK, 1.0, free_model=True)).model == "logreg"
    assert method.auto(Wanted({}, TASK, 1.0)).model is None
    assert method.auto(Wanted({}, replace(TASK, records=1_000_000), 8.0, free_model=True)).model is None


@pytest.mark.parametrize("name", KIN)
def test_a_drowned_run_says_so_and_a_clear_one_does_not(name: str) -> None:
    method = METHODS[name]
    for records, epsilon, drowned in ((20, 0.1, True), (20_000, 5.0, False)):
        task = replace(TASK, records=records, model="logreg")
        settings = choose(name, task, epsilon).model_dump(exclude_unset=True)
        config = RunConfig(epsilon=epsilon, settings=settings)
        said = planning.warnings_of(config, task, planning.resolve(config, task, method), method)
        assert any("noise drowns" in line for line in said) is drowned


def test_the_width_is_that_of_what_the_last_layer_sees() -> None:
    assert auto.width(replace(TASK, model="logreg")) == 256
    assert auto.width(replace(TASK, model="mlp")) == 64
    assert auto.width(TASK) == 32 * 2 * 2


@pytest.mark.parametrize("name", ["feddm-dp", "psg"])
def test_the_ledger_holds_what_was_planned_for_the_chosen_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = RunConfig(
        method=name, data="digits", subset=60, epsilon=2.0, sites=2, tuning="auto", out=str(tmp_path / "run"),
        settings={"images": 1, "updates": 1},
    )  # fmt: skip
    planned = planning.plan(config)
    result = simulate.run(config)
    assert (result.epsilon, result.sigma) == (planned.epsilon, planned.sigma)
    assert result.epsilon == pytest.approx(2.0, rel=0.02)
    assert "logreg" in (tmp_path / "run" / "config.json").read_text()
