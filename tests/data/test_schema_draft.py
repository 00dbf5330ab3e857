"""A draft of a schema: what columns look like, what is asked of a person, and that a draft reads back."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.data.schema_draft import draft, load_columns, look_of
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError


@pytest.mark.parametrize(
    ("cells", "look"),
    [
        (["", "NA", "nan"], "empty"),
        (["0", "1", "1"], "binary"),
        (["yes", "no", "yes", "no"], "binary"),
        (["1", "2", "3.0"], "integer"),
        (["1", "2.5", "3"], "number"),
        (["a", "b", "c", "a", "b", "c"], "categorical"),
        (["2020-01-02", "2021-03-04", "2022-05-06"], "date"),
        (["1/2/2020", "3.4.21", "5-6-1999 12:30"], "date"),
        ([f"note {i}" for i in range(9)], "text"),
        ([3, 4, 5], "integer"),
    ],
)
def test_what_a_column_looks_like(cells: list[object], look: str) -> None:
    assert look_of(cells) == look


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        (["01067", "80331", "10115"], True),
        (["80331", "60311", "10115", ""], True),
        (["07", "08", "12"], True),
        (["2019", "2020", "2021", "2022"], False),
        (["0.5", "0", "1.5"], False),
        (["1", "20", "300"], False),
        ([f"{i:05}" for i in range(100)], False),
    ],
)
def test_a_few_codes_are_drafted_as_categories_and_may_be_declared_as_numbers(
    cells: list[str], codes: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;y\n" + "".join(f"{cell};{i % 2}\n" for i, cell in enumerate(cells)))
    text, _ = draft(path, label="y", unit=None, bounds_from_data=False)
    assert ('type = "categorical"' in text) == codes
    assert look_of(cells) in ("integer", "number"), "whoever declares a number of them may"


def test_a_label_of_codes_has_classes(tmp_path: Path) -> None:
    codes = [f"{10_000 + 3_000 * (i % 25)}" for i in range(100)]
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i % 7},{code}\n" for i, code in enumerate(codes)))
    text, _ = draft(tmp_path / "t.csv", label="y", unit=None, bounds_from_data=True)
    (tmp_path / "s.toml").write_text(text)
    assert len(read_schema(tmp_path / "s.toml").classes) == 25


def test_empty_cells_do_not_change_the_look() -> None:
    assert look_of(["1", "", "2", "NA", "3"]) == look_of(["1", "2", "3"]) == "integer"


TEXT = (
    "age,sex,born,notes,ill,patient\n"
    + "".join(f"{30 + i},{'fm'[i % 2]},20{i:02}-01-01,text {i},{('no', 'yes')[i % 2]},p{i}\n" for i in range(8))
    + ",f,2010-01-01,text,no,p9\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(TEXT)
    return path


def test_a_draft_names_roles_categories_and_gaps(table: Path) -> None:
    text, notes = draft(table, label="ill", unit="patient", bounds_from_data=False)
    assert 'label = "ill"' in text
    assert 'classes = ["no", "yes"]  # confirm' in text
    assert 'unit = "patient"' in text
    assert 'categories = ["f", "m"]  # confirm' in text
    assert "# min =   # a public lower bound" in text
    assert "missing = true  # a value of its own" in text
    assert "unit_rows = 10" in text
    assert (
        'name = "born"\ntype = "date"\n# min =   # a public lower bound\n# max =   # an upper one\nstep = "day"' in text
    )
    assert notes == ["Column 'notes' holds free text: it is left out."]


def test_bounds_are_taken_from_the_records_only_on_request_and_are_called_private(table: Path) -> None:
    text, notes = draft(table, label="ill", unit=None, bounds_from_data=True)
    assert "min = 30.0  # from the records: private" in text
    assert "max = 37.0  # from the records: private" in text
    assert notes[-1] == (
        "Bounds were read off the records and are private; replace them by public ones before any release."
    )


def test_a_draft_with_bounds_is_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,sex,ill\n30,f,no\n41,m,yes\n52,f,no\n")
    text, _ = draft(path, label="ill", unit=None, bounds_from_data=True)
    (tmp_path / "s.toml").write_text(text)
    schema = read_schema(tmp_path / "s.toml")
    assert schema.names == ("age", "sex")
    assert schema.classes == ("no", "yes")
    assert schema.columns[0].bounds() == (30.0, 52.0)


def test_names_with_quotation_marks_survive(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('"a ""b""",y\n1,0\n2,1\n3,1\n')
    text, _ = draft(path, label="y", unit=None, bounds_from_data=True)
    (tmp_path / "s.toml").write_text(text)
    assert read_schema(tmp_path / "s.toml").names == ('a "b"',)


def test_what_is_refused(table: Path, tmp_path: Path) -> None:
    columns = "age, sex, born, notes, ill, patient"
    with pytest.raises(UserError) as error:
        draft(table, label="sick", unit=None, bounds_from_data=False)
    assert str(error.value) == f"Expected label column 'sick' in {table}, got columns {columns}."
    with pytest.raises(UserError) as error:
        load_columns(tmp_path / "none.csv")
    assert str(error.value) == f"Expected a CSV or Parquet file at {tmp_path / 'none.csv'}, but there is nothing."
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(UserError) as error:
        load_columns(tmp_path / "t.json")
    assert str(error.value) == f"Expected a .csv, .tsv or .parquet file, got {tmp_path / 't.json'}."


def test_a_time_of_day_has_a_day_for_its_bounds_and_dates_have_an_example_of_a_rule(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("came,at,left,y\n2020-01-02,10:15,2020-02-01,0\n2020-03-04,23:00,2020-03-05,1\n")
    text, _ = draft(path, label="y", unit=None, bounds_from_data=False)
    assert 'type = "time"  # of the whole day, or within a min and a max\nstep = "minute"' in text
    assert '# [[constraints]]  # what must hold in every row, for example:\n# rule = "came <= left"' in text
    uncommented = text.replace("# [[constraints]]", "[[constraints]]").replace("# rule", "rule")
    uncommented = uncommented.replace("# within", "within")
    for name, value in (("min", "2020-01-01"), ("max", "2021-01-01")):
        rest = "a public lower bound" if name == "min" else "an upper one"
        uncommented = uncommented.replace(f"# {name} =   # {rest}", f'{name} = "{value}"')
    (tmp_path / "s.toml").write_text(uncommented)
    (rule,) = read_schema(tmp_path / "s.toml").constraints
    assert (rule.words, rule.within) == ("came <= left", 60)


def test_a_long_tail_is_drafted_on_a_logarithmic_scale(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{i / 10},{1.5**i:.2f},{1.5**i - 9:.2f},{i % 2}\n" for i in range(1, 20))
    path.write_text("even,cost,change,y\n" + rows)
    text, _ = draft(path, label="y", unit=None, bounds_from_data=True)
    (tmp_path / "s.toml").write_text(text)
    assert [column.scale for column in read_schema(tmp_path / "s.toml").columns] == ["linear", "log", "linear"]
