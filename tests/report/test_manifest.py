"""What leaves a site, for every method: a row each, in the words of its own manifest."""

from __future__ import annotations

import pytest

from prismfl.methods import METHODS
from prismfl.report.manifest import manifest, manifest_page

ROWS = {row["method"]: row for row in manifest()}


def test_every_method_has_a_row() -> None:
    assert list(ROWS) == list(METHODS)


@pytest.mark.parametrize(
    ("method", "leaves", "often", "guarantee"),
    [
        ("fedavg", "model (weights)", "every round", "no DP guarantee: epsilon infinity"),
        ("local-only", "nothing", "once", "nothing leaves: epsilon 0"),
        ("prism", "statistics (statistics)", "once", "DP at the site; unit record (or a declared column)"),
        ("scaffold", "model (weights), control (gradient)", "every round", "no DP guarantee: epsilon infinity"),
        (
            "dp-fedavg-client",
            "update (gradient)",
            "every round",
            "DP at the hub; unit client; none towards the hub",
        ),
    ],
)
def test_rows_by_hand(method: str, leaves: str, often: str, guarantee: str) -> None:
    row = ROWS[method]
    assert (row["what leaves"], row["how often"], row["guarantee"]) == (leaves, often, guarantee)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_without_a_guarantee_is_called_private(name: str) -> None:
    row, method = ROWS[name], METHODS[name]
    assert row["guarantee"].startswith("DP") == (method.guarantee is not None and bool(method.leaves))
    for item in method.leaves:
        assert item in row["what leaves"]


def test_the_page_is_one_table_with_a_line_a_method() -> None:
    lines = [line for line in manifest_page().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(METHODS)
    assert {line.count("|") for line in lines} == {5}
