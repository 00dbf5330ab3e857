"""Automatic settings in a run: chosen where they are wanted, kept in a cache, never over what was given."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prismfl
from prismfl.core.method import Chosen, Method, Wanted
from prismfl.data import DATASETS
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs import planning, simulate, tuning
from tests.runs.small import small_config


def chooser(seen: list[Wanted], **settings: Any) -> Method:
    def auto(wanted: Wanted) -> Chosen:
        seen.append(wanted)
        return Chosen(settings, ("because",))

    return replace(METHODS["dp-fedavg"], auto=auto)


def test_what_is_not_given_is_chosen_and_kept_with_the_reason(tmp_path: Path) -> None:
    seen: list[Wanted] = []
    said: list[str] = []
    config = small_config(tmp_path / "run", tuning="auto")
    simulate.run(config, method=chooser(seen, clip=0.7, steps=9), tell=said.append)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (stored["settings"]["clip"], stored["settings"]["steps"]) == (0.7, 2)
    assert stored["tuning"] == "fixed"
    assert said == ["because"]
    assert json.loads((tmp_path / "run" / "choices.json").read_text())["why"] == ["because"]
    assert (seen[0].epsilon, seen[0].task.records) == (3.0, 100)


def test_the_same_facts_are_rehearsed_once(tmp_path: Path) -> None:
    seen: list[Wanted] = []
    method = chooser(seen, clip=0.7)
    for name in ("a", "b"):
        simulate.run(small_config(tmp_path / name, tuning="auto"), method=method)
    assert len(seen) == 1
    simulate.run(small_config(tmp_path / "c", tuning="auto", epsilon=2.0), method=method)
    assert len(seen) == 2


def test_a_spoilt_cache_is_rehearsed_again(tmp_path: Path) -> None:
    seen: list[Wanted] = []
    method = chooser(seen, clip=0.7)
    simulate.run(small_config(tmp_path / "a", tuning="auto"), method=method)
    (kept,) = tuning.cache_folder().glob("*.json")
    kept.write_text('{"settings": 3')
    simulate.run(small_config(tmp_path / "b", tuning="auto"), method=method)
    assert len(seen) == 2


def test_fixed_means_the_plain_defaults(tmp_path: Path) -> None:
    seen: list[Wanted] = []
    simulate.run(small_config(tmp_path / "a", tuning="fixed"), method=chooser(seen, clip=0.7))
    assert not seen


def test_the_environment_decides_where_a_config_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not tuning.wanted(None)  # the tests' own
    assert tuning.wanted("auto")
    monkeypatch.delenv(tuning.TUNING)
    assert tuning.wanted(None)
    monkeypatch.setenv(tuning.TUNING, "maybe")
    with pytest.raises(UserError, match="PRISMFL_TUNING to be auto or fixed, got 'maybe'"):
        tuning.wanted(None)


def test_a_setting_that_is_none_is_refused_before_anything_is_rehearsed() -> None:
    seen: list[Wanted] = []
    config = small_config(Path("unused"), tuning="auto", settings={"clap": 1})
    task = planning.task_of(config, planning.declared_spec(config), METHODS["dp-fedavg"])
    with pytest.raises(UserError, match="Unknown key 'clap'"):
        planning.tuned(config, task, chooser(seen))
    assert not seen


def test_drawn_mixtures_are_the_public_images_where_settings_are_chosen() -> None:
    config = small_config(Path("unused"), method="prism", settings={}, tuning="auto")
    assert planning.mixed_public(config, METHODS["prism"]).public == "procedural-mixed"
    named = config.model_copy(update={"public": "omniglot"})
    assert planning.mixed_public(named, METHODS["prism"]).public == "omniglot"
    fixed = config.model_copy(update={"tuning": "fixed"})
    assert planning.mixed_public(fixed, METHODS["prism"]).public is None


def test_prism_chooses_for_itself_on_data_nobody_tuned_it_for(tmp_path: Path) -> None:
    cheap = {"atoms": 16, "pool": 2, "images": 2, "steps": 2, "train_steps": 3}
    result = prismfl.run(
        "prism", data="digits", sites=5, epsilon=5.0, tuning="auto", out=str(tmp_path / "run"), settings=cheap
    )
    assert result.recommended in ("head", "linear")
    assert set(result.models) == {"network", "head", "linear"}
    assert result.accuracy == result.models[result.recommended]["accuracy"]
    assert result.models["head"]["accuracy"] > 75


def test_a_changed_rule_is_rehearsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a method outside the package; its rule is a file that changes between two runs of one version."""
    source = (
        "from prismfl.core.method import Chosen\ndef auto(wanted):\n    return Chosen({'clip': 0.7}, ('because',))\n"
    )
    asked = Wanted({}, planning.task_of(small_config(tmp_path), DATASETS["mnist-5k"], METHODS["dp-fedavg"]), 1.0)
    digests = []
    monkeypatch.syspath_prepend(tmp_path)
    for text in (source, source, source.replace("0.7", "0.8")):
        (tmp_path / "own_rule.py").write_text(text)
        monkeypatch.delitem(sys.modules, "own_rule", raising=False)
        method = replace(METHODS["dp-fedavg"], auto=importlib.import_module("own_rule").auto)
        digests.append(tuning.digest_of(method, asked))
    assert digests[0] == digests[1] != digests[2]
