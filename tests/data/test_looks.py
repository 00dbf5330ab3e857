"""What a column looks like: signs in numbers, formats of dates, ids, and what is the same in a unit."""

from __future__ import annotations

from datetime import date

import pytest

from prismfl.data.looks import constant_in, decimals_of, format_of, is_id, look_of, signs_of, step_of


@pytest.mark.parametrize(
    ("cells", "signs"),
    [
        (["1.5", "2"], (".", "")),
        (["1,5", "2,25"], (",", "")),
        (["1,234", "12"], (".", ",")),
        (["1.234,5", "12,25"], (",", ".")),
        (["1 234", "12"], (".", " ")),
        (["1'234.5", "12"], (".", "'")),
        (["1,2,3"], None),
        (["9" * 100], None),
    ],
)
def test_the_signs_in_numbers(cells: list[str], signs: tuple[str, str] | None) -> None:
    assert signs_of(cells) == signs


def test_numbers_with_commas_times_and_dates_are_seen() -> None:
    assert look_of(["1,5", "2,25", "3"]) == "comma"
    assert look_of(["12:30", "7:05", "23:59"]) == "time"
    assert look_of([date(2020, 1, 1), date(2020, 1, 2), None]) == "date"
    assert decimals_of(["1,5", "2,25", "3"], ",") == 2


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2020-01-31", ""], ""),
        (["31.01.2020"], "%d.%m.%Y"),
        (["31/01/2020"], "%d/%m/%Y"),
        (["01/31/2020"], "%m/%d/%Y"),
        (["31.01.2020 12:30"], "%d.%m.%Y %H:%M"),
        (["31.01.2020", "2020-01-31"], None),
    ],
)
def test_the_format_of_dates(cells: list[str], form: str | None) -> None:
    assert format_of(cells) == form


def test_the_step_of_moments() -> None:
    assert [step_of([0.0, m]) for m in (86400.0, 3600.0, 60.0, 1.0)] == ["day", "hour", "minute", "second"]


def test_ids_are_different_in_every_row() -> None:
    codes = [f"P{i:04}" for i in range(30)]
    assert is_id("whatever", codes)
    assert is_id("case_id", [str(i) for i in range(30)])
    assert not is_id("income", [str(i) for i in range(30)])
    assert not is_id("case_id", ["1"] * 30)
    assert not is_id("humid", [str(i) for i in range(30)])
    assert not is_id("day", [f"2020-01-{i:02}" for i in range(1, 31)])


def test_what_is_the_same_in_a_unit() -> None:
    ids = ["a", "a", "b", "c"]
    assert constant_in(ids, [1, 1, 2, 1])
    assert not constant_in(ids, [1, 2, 2, 1])
    assert not constant_in(["a", "b"], [1, 2])
    assert not constant_in(ids, [1, 1, 1, 1])
