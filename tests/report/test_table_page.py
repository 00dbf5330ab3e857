"""The page of a synthetic table: promise, checks, columns; all from what was released."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from prismfl.data.schema import Column
from prismfl.errors import UserError
from prismfl.report.table_page import _described, _short, _whole_bar, is_table, table_facts, write_table_page
from prismfl.synth.tables import synth_table

SCHEMA = """
label = "ill"
classes = ["no", "yes"]
unit = "patient"
unit_rows = 3
[[columns]]
name = "height"
min = 100
max = 220
missing = true
[[columns]]
name = "<b>ward</b>"
type = "categorical"
categories = ["heart", "<script>alert(1)</script>"]
missing = true
[[columns]]
name = "start"
type = "date"
min = "2020-01-01"
max = "2020-12-31"
[[columns]]
name = "end"
type = "date"
min = "2020-01-01"
max = "2020-12-31"
[[constraints]]
rule = "start <= end"
within = 90
"""
FAST = ["queries=6", "start=4", "rate=1.0", "hidden=[4]", "latent=2"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    wards = ["heart", "<script>alert(1)</script>", ""]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["patient", "height", "<b>ward</b>", "start", "end", "ill"])
        for i in range(120):
            days = (f"2020-01-{1 + i % 20:02}", f"2020-02-{1 + i % 20:02}")
            out.writerow([i // 2, 150 + i % 40 if i % 5 else "", wards[i % 3], *days, "yes" if i % 4 else "no"])
    (tmp_path / "s.toml").write_text(SCHEMA)
    path = tmp_path / "out.csv"
    synth_table(
        str(tmp_path / "t.csv"), schema=tmp_path / "s.toml", out=path, epsilon=5.0, delta=1e-4, records=60, rows=120,
        sets=FAST, seed=1,
    )  # fmt: skip
    return path


def test_the_page_says_the_promise_and_what_the_columns_hold(made: Path) -> None:
    assert is_table(made)
    page, twin, facts = write_table_page(made, made.with_suffix(".html"))
    text = page.read_text()
    assert facts["checks"] == {"the table is the certified one": True, "start <= end": True}
    assert [one["name"] for one in facts["columns"]] == ["height", "<b>ward</b>", "start", "end", "ill"]
    for one in (*facts["columns"], facts["unit"]):
        assert sum(share for _, share in one["shares"]) == pytest.approx(1.0)
    assert facts["columns"][0]["shares"][-1][0] == "missing"
    assert facts["unit"]["name"] == "rows of a patient"
    assert "simulation: no protection" in text
    assert "<script>alert" not in text
    assert "<b>ward" not in text
    assert json.loads(twin.read_text())["table"] == "out.csv"


def test_another_table_under_the_same_name_is_seen(made: Path) -> None:
    lines = made.read_text().splitlines()
    made.write_text("\n".join(lines[:-1]) + "\n")
    assert table_facts(made)["checks"]["the table is the certified one"] is False


def test_a_row_that_breaks_a_rule_is_seen_though_its_difference_is_what_was_drawn(made: Path) -> None:
    assert table_facts(made)["checks"]["start <= end"] is True
    with made.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[3]["start"], rows[3]["end"] = "2020-05-05", "2020-05-04"
    with made.open("w", newline="") as file:
        out = csv.DictWriter(file, fieldnames=list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    assert table_facts(made)["checks"]["start <= end"] is False


def test_bars_are_as_even_as_the_declared_scale() -> None:
    told = _described(Column("cost", min=0, max=999, scale="log"), np.array([1.0, 2.0, 600.0, 999.0]))
    assert told["shares"][0][0] == "0 to 0.9953"
    assert told["shares"][-1] == ("500.2 to 999", 0.5)


def test_a_table_without_its_certificate_has_no_page(made: Path, tmp_path: Path) -> None:
    (tmp_path / "out.certificate.json").unlink()
    with pytest.raises(UserError, match=r"Expected the certificate of .*out\.csv at .*out\.certificate\.json"):
        table_facts(made)
    with pytest.raises(UserError, match="but there is nothing"):
        table_facts(tmp_path / "none.csv")


def test_a_whole_bar_is_not_less_than_the_share_and_large_numbers_are_written_out() -> None:
    assert [_whole_bar(shares) for shares in ([], [0.04, 0.1], [0.12], [0.507, 0.493], [1.0])] == [0.1, 0.1, 0.25, 1, 1]
    cost = Column("cost", min=0, max=1e6)
    assert [_short(cost, value) for value in (14371.2, -25e5, 303.9, 0.00123)] == [
        "14,370",
        "-2,500,000",
        "303.9",
        "0.00123",
    ]
