"""Cells as values: numbers with other signs, dates in any declared form, and cells that want to be something else."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.data.cells import (
    Names,
    instant,
    is_missing,
    listed,
    moment_words,
    number_of,
    plain,
    shown,
    step_seconds,
    value_of,
)

MOMENTS = st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 1, 1)).map(
    lambda found: found.replace(microsecond=0)
)


@given(MOMENTS, st.sampled_from(["%Y-%m-%dT%H:%M:%S", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"]))
def test_a_moment_comes_back_from_its_words(at: datetime, form: str) -> None:
    seconds = instant(at.strftime(form), form)
    assert seconds == instant(at)
    assert seconds is not None
    assert moment_words(seconds, form) == at.strftime(form)


def test_dates_times_and_what_is_neither() -> None:
    assert instant("1970-01-02") == instant(date(1970, 1, 2)) == 86400.0
    assert instant(datetime(1970, 1, 1, 1, tzinfo=UTC)) == 3600.0
    assert instant("12:30", clock=True) == instant(time(12, 30), clock=True) == 45000.0
    for cell in ("31.12.2020", "2020-02-30", "yesterday", "9" * 10_000, 5, None, time(1)):
        assert instant(cell) is None
    assert instant("2020-01-01", "%d.%m.%Y") is None


@pytest.mark.parametrize(
    ("cell", "decimal", "thousands", "value"),
    [
        ("1.5", ".", "", 1.5),
        ("1,5", ".", "", None),
        ("1,5", ",", "", 1.5),
        ("1.5", ",", "", None),
        ("1.234.567,25", ",", ".", 1234567.25),
        ("1\u202f234", ".", " ", 1234.0),
        ("1'000", ".", "'", 1000.0),
        (7, ",", ".", 7.0),
        ("1" * 1000, ".", "", None),
        (object(), ".", "", None),
        (10**400, ".", "", None),
    ],
)
def test_numbers_by_their_declared_signs(cell: object, decimal: str, thousands: str, value: float | None) -> None:
    assert number_of(cell, decimal, thousands) == value


def test_steps() -> None:
    assert [step_seconds(step) for step in ("day", "15 minutes", "2 Weeks", "hour")] == [86400, 900, 1209600, 3600]
    assert [step_seconds(step) for step in ("month", "0 days", "-1 day", "day day", "")] == [None] * 5


def test_text_and_empty_cells() -> None:
    assert [plain(value) for value in (1, 1.0, "1 ", None, 1.5)] == ["1", "1", "1", "", "1.5"]
    assert all(is_missing(cell) for cell in ("", " ", "NA", "n/a", None, math.nan, "NaT", "<NA>"))
    assert not any(is_missing(cell) for cell in (0, "0", "-", "nobody"))
    assert value_of("inf") is None
    assert Names(["1", "2"]).code("1.0") == 0
    assert listed([str(i) for i in range(30)]).endswith("19, ... (30 in all)")


def test_a_message_shows_a_cell_on_one_short_line() -> None:
    assert shown("a\nb\u202ec\x00") == "a\\x0ab\\x202ec\\x00"
    assert len(shown("x" * 10_000_000)) < 50
