"""One declared column: as many decimals as make sense, words of the networks, and what cannot be declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from prismfl.data import Column, Schema
from prismfl.data.cells import instant
from prismfl.errors import UserError


@pytest.mark.parametrize(
    ("column", "digits"),
    [
        (Column("a", min=0, max=120, integer=True), 0),
        (Column("a", min=0, max=200), 1),
        (Column("a", min=0.05, max=0.17), 4),
        (Column("a", min=100, max=2600), 0),
        (Column("a", min=100, max=2600, decimals=3), 3),
        (Column("a", min=0.125, max=5000), 3),
        (Column("a", min=0, max=100_000, scale="log"), 0),
        (Column("a", min=0, max=1000, scale="log"), 2),
    ],
)
def test_as_many_decimals_as_are_declared_or_make_sense(column: Column, digits: int) -> None:
    assert column.digits == digits
    x = torch.rand(50, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    made = Schema((column,), "ill", ("0", "1")).decode(x)["a"].tolist()
    assert max(len(repr(float(v)).partition(".")[2]) if v % 1 else 0 for v in made) <= digits


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"other": "x"}, r"Expected other only for a column of type categorical or binary or ordinal; .* is numeric"),
        ({"type": "date", "min": 0.0, "max": 86400.0, "decimals": 1}, "Expected decimals only for .* numeric"),
        ({"type": "date"}, "Expected declared min and max for date column 'a'; bounds are never taken from the data"),
        ({"type": "date", "min": 0.0, "max": 9e5, "step": "month"}, "Expected a step such as day, hour or 15 minutes"),
        ({"type": "date", "min": 0.0, "max": 9e8, "format": "%d.%m."}, "Expected a format .* read back, got '%d.%m.'"),
        ({"decimal": ",", "thousands": ","}, "Expected different signs as decimal and thousands"),
        ({"decimal": ";"}, "Expected '.' or ',' as decimal"),
        ({"decimals": 99}, "Expected 0 to 12 decimals"),
        ({"type": "ordinal"}, "Expected declared categories"),
        ({"type": "categorical", "categories": ("a",), "other": "b"}, "Expected other of column 'a' among its categ"),
        (
            {"type": "categorical", "categories": tuple(map(str, range(20_000)))},
            "at most 10,000 categories for column 'a', got 20,000; coarsen them, or declare the column as id or text",
        ),
    ],
)
def test_columns_that_cannot_be_are_refused_in_one_line(given: dict[str, Any], line: str) -> None:
    bounds = {} if "type" in given else {"min": 0.0, "max": 1.0}
    with pytest.raises(UserError, match=line) as error:
        Column("a", **{**bounds, **given})
    assert "\n" not in str(error.value)


def test_what_a_column_becomes() -> None:
    number: dict[str, Any] = {"min": 0.0, "max": 1.0}
    choice: dict[str, Any] = {"categories": ("a", "b", "c")}
    #: 0.0, "max": 1.0}, {"categories": ("a", "b", "c")}
    found = [
        (Column("x", **number), "n"),
        (Column("x", **number, missing=0.5), "n"),
        (Column("x", **number, missing=True), "m"),
        (Column("x", "date", **number, step="second", missing=True), "m"),
        (Column("x", "binary"), "b"),
        (Column("x", "binary", missing=True), "c3"),
        (Column("x", "ordinal", **choice), "c3"),
        (Column("x", "categorical", **choice, missing=True), "c4"),
        (Column("x", "categorical", **choice, missing="a"), "c3"),
    ]
    assert [column.word for column, _ in found] == [word for _, word in found]
    assert Column("x", **number, missing=True).width == 2
    assert Column("x", **number, missing=False) == Column("x", **number)


def test_rounding_stays_within_the_bounds() -> None:
    week = Column("x", "date", min=instant("2024-01-01"), max=instant("2024-01-31"), step="week")
    values = np.array([instant("2024-01-01"), instant("2024-01-06"), instant("2024-01-31"), np.nan])
    assert [week.words(v) for v in week.rounded(values)[:3]] == ["2024-01-01", "2024-01-08", "2024-01-29"]
    assert np.isnan(week.rounded(values)[3])
    assert Column("x", min=0.5, max=3.5, integer=True).rounded(np.array([0.5, 3.5])).tolist() == [1.0, 3.0]
