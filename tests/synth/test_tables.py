"""`prismfl synth` on tables: what comes out, what it says, and every kind of bad input; drafts of a schema."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismfl.data.schema_draft import draft, look_of
from prismfl.errors import BudgetError, UserError
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from prismfl.synth import tables
from prismfl.synth.tables import read_private, synth_table

HEADER = ["age", "smoker", "ward", "outcome"]
SCHEMA = """
label = "outcome"
classes = ["well", "ill"]

[[columns]]
name = "age"
min = 0
max = 100
integer = true

[[columns]]
name = "smoker"
type = "binary"
categories = ["no", "yes"]

[[columns]]
name = "ward"
type = "categorical"
categories = ["north", "south", "west"]
"""
FAST = ["queries=4", "start=4", "rate=1.0", "hidden=[4]", "latent=2"]


def some_rows(n: int = 60) -> list[list[Any]]:
    g = np.random.default_rng(0)
    wards = ["north", "south", "west"]
    return [
        [int(g.integers(20, 90)), "yes" if i % 4 == 0 else "no", wards[i % 3], "ill" if i % 3 == 0 else "well"]
        for i in range(n)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path, HEADER, some_rows())
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def write(place: Path, header: list[str], rows: list[list[Any]]) -> None:
    with (place / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def made(place: Path, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "schema": place / "schema.toml",
        "epsilon": 2.0,
        "delta": 1e-4,
        "out": place / "out" / "synthetic.csv",
        "seed": 0,
        "sets": FAST,
        "records": 60,
    }
    return synth_table(str(place / "data.csv"), **{**settings, **changes})


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_columns_and_types_and_a_certificate(place: Path) -> None:
    found = made(place, rows=40)
    rows = rows_of(place / "out" / "synthetic.csv")
    assert len(rows) == found["rows"] == 40
    assert list(rows[0]) == HEADER
    assert all(0 <= int(row["age"]) <= 100 for row in rows)
    assert {row["ward"] for row in rows} <= {"north", "south", "west"}
    assert {row["outcome"] for row in rows} <= {"well", "ill"}
    certificate = json.loads((place / "out" / "synthetic.certificate.json").read_text())
    shared = {key: value for key, value in found.items() if key != "ledger"}
    assert certificate == {**shared, "out": "synthetic.csv"}, "paths stay here"
    assert 1.9 < certificate["epsilon"] <= 2.0
    assert certificate["noise"].startswith("seeded")
    assert certificate["records"] == 60


def test_a_seed_repeats_and_the_operating_system_does_not(place: Path) -> None:
    digests = [made(place, out=place / f"{i}" / "a.csv", seed=s)["sha256"] for i, s in enumerate((1, 1, 2))]
    assert digests[0] == digests[1] != digests[2]
    real = [made(place, out=place / f"d{i}" / "a.csv", seed=None) for i in range(2)]
    assert real[0]["sha256"] != real[1]["sha256"]
    assert real[0]["noise"] == "operating system"


def test_every_release_is_charged_and_the_cap_refuses_before_anything_is_written(place: Path) -> None:
    book = str(place / "ledger")
    made(place, ledger=book, cap=3.0, seed=None)
    with Ledger.open(place / "ledger" / "ledger.sqlite") as ledger:
        assert len(ledger.charges()) == 1
    with pytest.raises(BudgetError):
        made(place, ledger=book, cap=3.0, seed=None, out=place / "second" / "b.csv")
    assert not (place / "second" / "b.csv").exists()
    with Ledger.open(place / "ledger" / "ledger.sqlite") as ledger:
        assert len(ledger.charges()) == 1


def test_a_value_out_of_bounds_is_clipped_and_its_count_stays_on_the_site(place: Path) -> None:
    write(place, HEADER, [[300, "no", "west", "ill"], [-5, "no", "west", "well"], *some_rows()])
    said: list[str] = []
    found = made(place, warn=said.append)
    assert [line for line in said if line.startswith("2 values lie outside")]
    assert "clip" not in json.dumps({k: v for k, v in found.items() if k != "settings"})


@pytest.mark.parametrize(
    ("header", "change", "message"),
    [
        (["age", "smoker", "outcome"], lambda r: [r[0], r[1], r[3]], "Expected column 'ward' of the schema"),
        (HEADER, lambda r: [r[0], r[1], "east", r[3]], "Value 'east' in column 'ward', row 1"),
        (HEADER, lambda r: ["", *r[1:]], "Column 'age' .* holds no value in any row"),
        (HEADER, lambda r: [*r[:3], "ill"], "takes only one of its declared classes"),
        (HEADER, lambda r: [f"2020-01-{1 + r[0] % 28:02d}", *r[1:]], "Column 'age' .* holds dates; declare type"),
        (HEADER, lambda r: [f"patient says {r[0]}", *r[1:]], "Column 'age' .* holds free text"),
        (HEADER, lambda r: [*r[:3], "gone"], "Label 'gone' in row 1"),
    ],
)
def test_bad_tables_are_refused_in_one_line(place: Path, header: list[str], change: Any, message: str) -> None:
    write(place, header, [change(row) for row in some_rows()])
    with pytest.raises(UserError, match=message) as caught:
        made(place)
    assert "\n" not in str(caught.value)
    assert not (place / "out" / "synthetic.csv").exists()


def test_an_empty_table_is_refused(place: Path) -> None:
    write(place, HEADER, [])
    with pytest.raises(UserError, match="got only a header"):
        made(place)


def test_a_small_class_is_warned_about_and_works(place: Path) -> None:
    rows = [[*row[:3], "ill" if i < 3 else "well"] for i, row in enumerate(some_rows())]
    write(place, HEADER, rows)
    said: list[str] = []
    made(place, warn=said.append)
    assert any("Class 'ill' has fewer than 10 records" in line for line in said)


def test_records_of_the_same_person_count_once(place: Path) -> None:
    write(place, ["pid", *HEADER], [[i // 4, *row] for i, row in enumerate(some_rows())])
    (place / "schema.toml").write_text('unit = "pid"\n' + SCHEMA)
    found = made(place, records=15, rows=20)
    assert found["unit"] == "pid"
    assert found["cost"]["unit"] == "pid"
    assert len(found["cost"]["branches"]) == 1
    rows = rows_of(place / "out" / "synthetic.csv")
    assert list(rows[0]) == ["pid", *HEADER]
    assert [row["pid"] for row in rows] == [str(i) for i in range(1, 21)]


def test_a_person_without_an_id_is_refused(place: Path) -> None:
    write(place, ["pid", *HEADER], [["", *row] for row in some_rows()])
    (place / "schema.toml").write_text('unit = "pid"\n' + SCHEMA)
    with pytest.raises(UserError, match="id column 'pid'"):
        made(place)


def test_a_schema_without_label_gives_one_generator(place: Path) -> None:
    write(place, HEADER[:3], [row[:3] for row in some_rows()])
    (place / "schema.toml").write_text("\n".join(SCHEMA.splitlines()[3:]))
    found = made(place, rows=30)
    assert list(rows_of(place / "out" / "synthetic.csv")[0]) == HEADER[:3]
    assert len(found["cost"]["branches"]) == 1


def test_parquet_keeps_types(place: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    made(place, out=place / "out" / "s.parquet")
    table = parquet.read_table(place / "out" / "s.parquet")
    assert table.column_names == HEADER
    assert str(table.schema.field("age").type) == "int64"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": -1.0}, "epsilon > 0"),
        ({"delta": 2.0}, "0 < delta < 1"),
        ({"out": Path("x.txt")}, "Expected a .csv or .parquet file as --out"),
        ({"rows": 0}, "rows >= 1"),
        ({"records": 0}, "records >= 1"),
        ({"schema": None}, "prismfl schema"),
        ({"sets": ["quieries=3"]}, "did you mean 'queries'"),
        ({"sets": ["queries=many"]}, "Bad value for 'queries'"),
        ({"sets": ["sigma=1"]}, "epsilon or sigma"),
        ({"sets": ["seed=1"]}, "setting of ddp-vae in --set, got 'seed'"),
    ],
)
def test_bad_options_are_named(place: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(place, **changes)
    assert not ledger_path().exists()


def test_every_setting_is_obeyed_also_one_that_is_called_like_a_runs(place: Path) -> None:
    found = made(place, sets=["queries=6", "start=5", "rate=1.0", "hidden=[4]", "latent=2"])
    assert (found["settings"]["queries"], found["settings"]["start"]) == (6, 5)


def test_a_named_table_needs_no_schema() -> None:
    table = read_private("breast-cancer", None)
    assert table.order[-1] == "diagnosis"
    assert len(table.holder.records) == 455


def test_the_draft_leaves_bounds_open_and_text_out(place: Path) -> None:
    rows = [[*row, f"2021-03-{1 + i % 28:02d}", f"note {i}", ""] for i, row in enumerate(some_rows())]
    write(place, [*HEADER, "day", "remark", "void"], rows)
    text, notes = draft(place / "data.csv", label="outcome", unit=None, bounds_from_data=False)
    assert "min = " not in text.replace("# min =", "")
    assert 'categories = ["north", "south", "west"]' in text
    assert 'name = "day"\ntype = "date"' in text
    assert 'name = "remark"\ntype = "text"' in text
    assert 'name = "void"' not in text
    assert len(notes) == 2
    (place / "schema.toml").write_text(text)
    with pytest.raises(UserError, match="declared min and max"):
        made(place)


def test_a_confirmed_draft_can_be_used(place: Path) -> None:
    text, notes = draft(place / "data.csv", label="outcome", unit=None, bounds_from_data=True)
    assert any("private" in note for note in notes)
    (place / "schema.toml").write_text(text)
    assert made(place)["rows"] >= 59


@pytest.mark.parametrize(
    ("values", "look"),
    [
        (["1", "2.5", "x"], "text"),
        (["", None], "empty"),
        (["3", "4", "5"], "integer"),
        (["0.5", "4", "5"], "number"),
        (["0", "1", ""], "binary"),
        (["a", "b", "c"] * 10, "categorical"),
        (["12/03/2020", "13/03/2020", "1/4/2020"], "date"),
    ],
)
def test_what_a_column_looks_like(values: list[Any], look: str) -> None:
    assert look_of(values) == look


def test_means_are_those_of_the_values_that_are_there(tmp_path: Path) -> None:
    """A fill-in of 100 (of heights around 172) would pull the mean down to 165."""
    g = np.random.default_rng(0)
    rows = [
        [
            "" if g.random() < 0.1 else round(g.normal(172, 8), 1),
            "" if g.random() < 0.3 else g.choice(["A", "B"]),
            i % 2,
        ]
        for i in range(1000)
    ]
    write(tmp_path, ["height", "blood", "ill"], rows)
    (tmp_path / "schema.toml").write_text(
        'label = "ill"\nclasses = [0, 1]\n[[columns]]\nname = "height"\nmin = 100\nmax = 220\nmissing = true\n'
        '[[columns]]\nname = "blood"\ntype = "binary"\ncategories = ["A", "B"]\nmissing = true\n'
    )
    made(tmp_path, epsilon=20.0, records=1000, sets=["queries=30", "start=20", "rate=1.0"])
    found = rows_of(tmp_path / "out" / "synthetic.csv")
    there = [float(row["height"]) for row in found if row["height"]]
    assert np.mean(there) == pytest.approx(172, abs=2)
    assert 1 - len(there) / len(found) == pytest.approx(0.1, abs=0.03)
    assert np.mean([row["blood"] == "" for row in found]) == pytest.approx(0.3, abs=0.06)
    assert {row["blood"] for row in found} == {"A", "B", ""}


def test_the_method_of_a_table_is_what_is_installed_unless_it_is_said(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(tables, "table_method", lambda: "ddp-vae")
    assert tables.preferred(told.append) == "dp-copula"
    assert "prismfl[tables]" in told[0]
    monkeypatch.setattr(tables, "table_method", lambda: "dp-marginals")
    assert tables.preferred(told.append) == "dp-marginals"
    assert len(told) == 1
    for method, settings in (("dp-copula", ["queries=4"]), ("dp-marginals", ["fitter=copula"])):
        found = made(place, method=method, sets=settings, out=place / method / "s.csv")
        assert set(rows_of(place / method / "s.csv")[0]) == set(HEADER)
        assert found["settings"]["columns"] == ["n", "b", "c3"]
        assert found["method"] == json.loads((place / method / "s.certificate.json").read_text())["method"] == method
        assert "gradients" not in found["mechanism"]["name"]
    with pytest.raises(UserError, match="Unknown method 'prism' for a table"):
        made(place, method="prism")


def refused_unspent(place: Path, message: str, **changes: Any) -> None:
    """One line, and nothing is charged or written."""
    with pytest.raises(UserError, match=message) as caught:
        made(place, **changes)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not ledger_path().exists()
    assert not (place / "out" / "synthetic.csv").exists()


def test_one_record_is_refused_and_a_category_that_is_not_declared(place: Path) -> None:
    write(place, HEADER, some_rows(1))
    refused_unspent(place, "takes only one of its declared classes")
    write(place, HEADER, [*some_rows(), [30, "yes", "east\u202e\n", "ill"]])
    refused_unspent(place, r"Value 'east.x202e' in column 'ward', row 61, .* or other = CATEGORY for all such values")
    (place / "schema.toml").write_text(SCHEMA + 'other = "west"\n')
    assert made(place)["rows"] > 50


def test_a_column_of_one_value_is_told_and_works(place: Path) -> None:
    write(place, HEADER, [[row[0], "no", *row[2:]] for row in some_rows()])
    said: list[str] = []
    made(place, warn=said.append)
    assert said == ["Columns with one value in all rows: smoker; they say nothing, --drop leaves them out."]


def test_columns_that_are_not_declared_are_left_out_and_told(place: Path) -> None:
    write(place, [*HEADER, "extra"], [[*row, "secret"] for row in some_rows()])
    said: list[str] = []
    made(place, warn=said.append)
    assert said == ["Ignored columns that are not in the schema: extra."]
    assert "secret" not in (place / "out" / "synthetic.csv").read_text()


def test_columns_to_keep_and_to_drop(place: Path) -> None:
    made(place, drop=["ward"])
    assert list(rows_of(place / "out" / "synthetic.csv")[0]) == ["age", "smoker", "outcome"]
    made(place, keep=["age"], out=place / "out" / "b.csv")
    assert list(rows_of(place / "out" / "b.csv")[0]) == ["age", "outcome"]
    for name, message in (
        ("wards", "Expected declared columns in --keep and --drop, got 'wards'"),
        ("outcome", "--drop"),
    ):
        with pytest.raises(UserError, match=message):
            made(place, drop=[name], out=place / "out" / "c.csv")


def test_a_table_that_does_not_fit_into_memory_is_refused_by_its_widest_columns(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES", 1000)
    refused_unspent(place, r"once it is encoded.*--drop the widest columns: 'ward' \(3 features\)")


def test_nothing_is_overwritten_unasked(place: Path) -> None:
    made(place)
    before = (place / "out" / "synthetic.csv").read_bytes()
    spent = ledger_path().read_bytes()
    with pytest.raises(UserError, match=r"synthetic.csv' exists already; give --force to replace it, or another file"):
        made(place, seed=None)
    assert ledger_path().read_bytes() == spent, "asked before anything is charged"
    assert (place / "out" / "synthetic.csv").read_bytes() == before
    made(place, seed=7, force=True)
    assert (place / "out" / "synthetic.csv").read_bytes() != before
    (place / "out" / "other.certificate.json").write_text("mine")
    with pytest.raises(UserError, match=r"other\.certificate\.json' exists already"):
        made(place, out=place / "out" / "other.csv")
    assert (place / "out" / "other.certificate.json").read_text() == "mine"


def test_each_output_has_its_own_certificate(place: Path) -> None:
    made(place, out=place / "out" / "a.csv")
    made(place, out=place / "out" / "b.csv", rows=40)
    rows = [json.loads((place / "out" / f"{name}.certificate.json").read_text())["rows"] for name in "ab"]
    assert rows == [60, 40]


@pytest.mark.parametrize("cell", ["x" * 200_000, "1" * 100_000, "\x00", "\ud7ff\u202e", "=1+1", "1e999", "9" * 400])
def test_hostile_cells_are_one_short_line(place: Path, cell: str) -> None:
    write(place, HEADER, [*some_rows(), [cell, "no", "west", "well"]])
    refused_unspent(place, "data.csv")


@pytest.mark.parametrize(
    "name", ['a "b"', "a;b;c;d;e", "two\nlines", "=1+1", "\u202egnp", "a,b", "'; drop", "x" * 5000]
)
def test_hostile_names_of_columns_are_names(place: Path, name: str) -> None:
    with (place / "data.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[name, *HEADER[1:]], *some_rows()])
    text, _ = draft(place / "data.csv", label="outcome", unit=None, bounds_from_data=True)
    (place / "schema.toml").write_text(text)
    made(place)
    assert next(iter(rows_of(place / "out" / "synthetic.csv")[0])) == name


def test_many_distinct_values_are_ids_or_text_in_a_draft(tmp_path: Path) -> None:
    rows = [[f"code-{i}", f"text of {i} words", i % 7, i % 2] for i in range(20_000)]
    write(tmp_path, ["code", "words", "n", "ill"], rows)
    text, notes = draft(tmp_path / "data.csv", label="ill", unit=None, bounds_from_data=False)
    assert 'name = "code"\ntype = "id"' in text
    assert 'name = "words"\ntype = "text"' in text
    assert len(text) < 1000
    assert len(notes) == 1


def test_a_number_as_label_is_a_column_like_the_others(place: Path) -> None:
    (place / "schema.toml").write_text(SCHEMA.replace('label = "outcome"\nclasses = ["well", "ill"]', 'label = "age"'))
    refused_unspent(place, "Expected no classes for the label 'age'", classes=["old", "young"])
    for method, settings in (("dp-copula", ["queries=4"]), ("dp-marginals", ["fitter=copula"])):
        found = made(place, method=method, sets=settings, out=place / method / "s.csv")
        rows = rows_of(place / method / "s.csv")
        assert set(rows[0]) == set(HEADER) - {"outcome"}
        assert all(0 <= int(row["age"]) <= 100 for row in rows)
        assert found["classes"] == ["all"]
        assert found["table"]["label"] == "age"
        assert "classes" not in found["table"]


def test_a_label_of_many_numbers_is_drafted_as_a_number(place: Path) -> None:
    text, _ = draft(place / "data.csv", label="age", unit=None, bounds_from_data=True)
    assert "classes = " not in text
    assert 'name = "age"' in text
    (place / "schema.toml").write_text(text)
    assert made(place)["table"]["label"] == "age"
    few, _ = draft(place / "data.csv", label="outcome", unit=None, bounds_from_data=True)
    assert 'classes = ["ill", "well"]' in few
