"""A column's declaration in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from prismfl.data.column_words import column_words, parse_column
from prismfl.errors import UserError

WORDS: dict[str, dict[str, Any]] = {
    "18..100": {"type": "numeric", "min": 18, "max": 100},
    "-1.5..2e3,log": {"type": "numeric", "min": -1.5, "max": 2000, "scale": "log"},
    "0..9,integer,missing=3": {"type": "numeric", "min": 0, "max": 9, "integer": True, "missing": 3},
    "f,m": {"type": "binary", "categories": ["f", "m"]},
    "a b,c,d": {"type": "categorical", "categories": ["a b", "c", "d"]},
    "0..1,missing": {"type": "numeric", "min": 0, "max": 1, "missing": True},
    "2020-01-01..2024-12-31": {"type": "date", "min": "2020-01-01", "max": "2024-12-31"},
    "08:00..18:30": {"type": "time", "min": "08:00", "max": "18:30"},
    "a,b,missing=a": {"type": "binary", "categories": ["a", "b"], "missing": "a"},
}


@pytest.mark.parametrize("words", WORDS)
def test_words_and_back(words: str) -> None:
    found = parse_column("x", words)
    assert found == {"name": "x", **WORDS[words]}
    assert parse_column("x", column_words(found) or "") == found


def test_left_out() -> None:
    assert parse_column("x", " - ") is None


@pytest.mark.parametrize("words", ["", "integer", "1..", "a", "1..2,a,b", "LOW..HIGH", "0..9,missing=x"])
def test_what_means_nothing_names_the_option(words: str) -> None:
    with pytest.raises(UserError, match="--column x="):
        parse_column("x", words)


@pytest.mark.parametrize(
    "column",
    [
        {"name": "x", "type": "numeric"},
        {"name": "x", "type": "categorical", "categories": ["a,b", "c", "d"]},
        {"name": "x", "type": "binary", "categories": ["1..2", "b"]},
        {"name": "x", "type": "date", "min": "2020-01-01"},
        {"name": "x", "type": "binary", "categories": ["missing", "b"]},
        {"name": "x", "type": "id"},
    ],
)
def test_what_words_cannot_say(column: dict[str, Any]) -> None:
    """Open bounds, categories that would be read as something else, kinds with keys of their own."""
    assert column_words(column) is None
