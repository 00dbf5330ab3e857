"""The public facts of a run: what a record is, how many sites are asked, and the door's rate."""

from __future__ import annotations

import pytest

from prismfl.core.task import Task
from prismfl.data.parts import Parts, RecordPart

PICTURE, WORDS = RecordPart("film", "image", (1, 8, 8)), RecordPart("report", "text", (64,))


def task(shape: tuple[int, ...], **facts: object) -> Task:
    given = {"data": "made", "classes": ("a", "b"), "sites": tuple("abcde"), "records": 40} | facts
    return Task(shape=shape, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "parts", "kind"),
    [
        ((1, 8, 8), None, "image"),
        ((7,), None, "table"),
        ((64,), Parts((WORDS,)), "text"),
        ((128,), Parts((PICTURE, WORDS)), "patient"),
    ],
)
def test_the_kind_is_what_was_declared(shape: tuple[int, ...], parts: Parts | None, kind: str) -> None:
    assert task(shape, parts=parts).kind == kind


@pytest.mark.parametrize(("participation", "asked"), [(1.0, 5), (0.5, 3), (0.1, 1), (0.001, 1)])
def test_a_round_asks_the_nearest_number_of_sites_and_at_least_one(participation: float, asked: int) -> None:
    assert task((7,), participation=participation).asked == asked


def test_the_rate_is_at_most_one() -> None:
    assert task((7,)).rate(10) == 0.25
    assert task((7,)).rate(400) == 1.0
