"""The dict of methods: names, settings that say what they are, and a file that says its paper and what leaves."""

from __future__ import annotations

import inspect
import re
import sys

import pytest

from prismfl.core.method import Wanted
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.runs import planning
from prismfl.runs.config import RunConfig


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_listed_under_its_own_name(name: str) -> None:
    assert METHODS[name].name == name


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_has_a_description_in_words_of_the_field(name: str) -> None:
    for field, info in METHODS[name].settings.model_fields.items():
        assert info.description, f"{name}: {field} says nothing of itself"
        wrong = re.search(
            r"(images|draws|epochs|steps|updates|records) a (class|round|site|step|batch)\b", info.description
        )
        assert wrong is None, f"{name}: {field} says '{wrong and wrong[0]}', not 'per'"


@pytest.mark.parametrize("name", METHODS)
def test_the_file_of_a_method_names_its_paper_and_what_leaves(name: str) -> None:
    settings = METHODS[name].settings
    words = inspect.getdoc(sys.modules[settings.__module__]) or ""
    assert "Paper: " in words, settings.__module__
    assert "hat leaves" in words or "`statistics`" in words, settings.__module__
    for number in re.findall(r"arXiv:(\d{4}\.\d{5})", METHODS[name].paper):
        assert f"arxiv.org/abs/{number}" in words, f"{name}: its file does not link {number}"


RULED = [name for name, method in METHODS.items() if method.auto is not None and not method.takes_encoder]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_with_a_guarantee_chooses_its_settings(name: str) -> None:
    method = METHODS[name]
    assert (method.auto is not None) == ("sigma" in method.settings.model_fields)


@pytest.mark.parametrize("name", RULED)
@pytest.mark.parametrize(("records", "sites", "epsilon"), [(1, 1, 0.1), (287, 5, 1.0), (30_000, 50, 8.0)])
def test_a_rule_gives_the_same_valid_settings_for_the_same_facts_and_they_meet_the_budget(
    name: str, records: int, sites: int, epsilon: float
) -> None:
    method = METHODS[name]
    assert method.auto is not None
    names = tuple(f"site-{i}" for i in range(1 if method.pooled else sites))
    task = Task("own", (1, 16, 16), ("a", "b", "c"), names, records, model="convnet:8")
    first, again = (method.auto(Wanted({}, task, epsilon)) for _ in range(2))
    assert first == again
    assert first.words
    config = RunConfig(epsilon=epsilon, settings=dict(first.settings))
    settings = planning.resolve(config, task, method)
    assert account.epsilon(method.plan(settings, task), task.delta) <= epsilon
    if method.advice is not None:
        assert all(isinstance(line, str) for line in method.advice(settings, task))
