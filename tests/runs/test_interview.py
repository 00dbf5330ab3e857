"""Questions and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.runs.interview import Inquiry, Interview, names, one_of, positive, whole

SITES = Inquiry("sites", "--sites 5", "How many?", "Because.", 5, whole(1))
LABEL = Inquiry("label", "--label COLUMN", "Which?", "Because.")


def test_an_option_wins_over_everything() -> None:
    asked = Interview({"sites": 3}, lambda _: "7", lambda _: None)
    assert asked.answer(SITES) == 3


def test_without_anybody_to_ask_proposals_are_taken_and_gaps_are_told_at_once() -> None:
    asked = Interview({}, None, lambda _: None, hint="; or --look")
    assert asked.answer(SITES) == 5
    assert asked.answer(LABEL) is None
    asked.answer(Inquiry("unit", "--unit X", "", ""))
    with pytest.raises(UserError) as error:
        asked.complete()
    assert str(error.value) == "Not declared: give --label COLUMN --unit X (with your own values); or --look."


def test_a_bad_answer_is_told_and_asked_again() -> None:
    said: list[str] = []
    answers = iter(["many", "0", "", "4"])
    asked = Interview({}, lambda _: next(answers), said.append)
    assert asked.answer(Inquiry("sites", "", "", "", None, whole(1))) == 4
    assert len(said) == 3
    assert Interview({}, lambda _: "", said.append).answer(SITES) == 5


@pytest.mark.parametrize(
    ("read", "good", "value", "bad"),
    [
        (whole(8, 1024), "1,000", 1000, "7"),
        (whole(8, 1024), "28", 28, "2000"),
        (positive, "0.5", 0.5, "0"),
        (positive, "2", 2.0, "inf"),
        (positive, "1e-3", 0.001, "x"),
        (names, "a, b", ["a", "b"], "a"),
        (names, "a,b,c", ["a", "b", "c"], "a,a"),
        (one_of(("x", "y"), "record"), "record", "record", "z"),
    ],
)
def test_readers(read: Callable[[str], Any], good: str, value: Any, bad: str) -> None:
    assert read(good) == value
    with pytest.raises(UserError):
        read(bad)


def test_a_proposal_as_one_would_type_it() -> None:
    assert Inquiry("c", "", "", "", ["a", "b"]).shown == "a,b"
    assert SITES.shown == "5"
