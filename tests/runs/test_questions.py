"""The questions of a set-up: what is proposed, and what is taken for an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.data.layout import DataLayout
from prismfl.errors import UserError
from prismfl.privacy.guessing import OFTEN_LESS
from prismfl.runs import questions
from prismfl.runs.interview import Inquiry

TABLE = DataLayout(Path("t.csv"), "table", ("age", "ill", "held"))
FOLDERS = DataLayout(Path("s"), "folders", ("a", "b"), 300)


def test_records_are_proposed_rounded_without_the_test_part() -> None:
    assert questions.records_question(3000, sites=3, test=0.2).proposal == 800
    assert questions.records_question(4000, sites=3, test=0.2).proposal == 1000
    assert questions.records_question(None, sites=3, test=0.2).proposal is None


def test_epsilon_is_asked_in_words_of_guessing() -> None:
    asked = questions.epsilon_question(1e-5, "record")
    assert asked.proposal == 1.0
    for number in ("62.2 %", "73.1 %", "88.1 %", "98.2 %", "99.97 %"):
        assert number in asked.why
    assert OFTEN_LESS in asked.why
    assert "a person (patient)" in questions.epsilon_question(1e-5, "patient").why


@pytest.mark.parametrize(
    ("question", "good", "bad"),
    [
        (questions.label_question(TABLE), "ill", "sick"),
        (questions.unit_question(TABLE), "age", "patient"),
        (questions.classes_question(None), "a,b", "a"),
        (questions.size_question(None), "28", "4"),
        (questions.channels_question(None), "3", "2"),
        (questions.split_question(TABLE), "dirichlet(0.3)", "idd"),
        (questions.test_question(TABLE), "held", "1.5"),
        (questions.test_question(FOLDERS), "0.25", "held"),
        (questions.column_question("age", None), "0..9", "0.."),
    ],
    ids=lambda value: value.key if isinstance(value, Inquiry) else str(value),
)
def test_answers(question: Inquiry, good: str, bad: str) -> None:
    assert question.read(good) is not None
    with pytest.raises(UserError):
        question.read(bad)
