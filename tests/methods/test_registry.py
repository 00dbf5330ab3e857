"""The dict of methods: names, settings that say what they are, and a file that says its paper and what leaves."""

from __future__ import annotations

import inspect
import re
import sys

import pytest

from prismfl.methods import METHODS


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
