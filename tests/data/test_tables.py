"""Tables with a label column: roles of columns, a declared schema or common bounds, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.data.faults import Faults
from prismfl.data.found import Found
from prismfl.data.schema import Column, Schema
from prismfl.data.tables import Roles, read_table
from prismfl.errors import UserError

SCHEMA = Schema(
    columns=(Column("age", min=0, max=100), Column("sex", type="binary", categories=("f", "m"))),
    label="ill",
    classes=("no", "yes"),
)
TEXT = "age,sex,ill,patient,clinic,part\n0,f,no,p1,A,train\n50,m,yes,p1,A,test\n100,f,yes,p2,B,0\n"


def written(tmp_path: Path, text: str = TEXT) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


def read(path: Path, *, roles: Roles | None = None, lenient: bool = False, **given: Any) -> Found:
    plain: dict[str, Any] = {"classes": None, "schema": SCHEMA, "bounds": None}
    return read_table(path, roles=roles or Roles(), **{**plain, **given}, faults=Faults(lenient=lenient))


def refused(path: Path, line: str, **given: Any) -> None:
    with pytest.raises(UserError) as error:
        read(path, **given)
    assert str(error.value) == line.replace("PATH", str(path))


def test_features_and_labels_by_the_schema(tmp_path: Path) -> None:
    found = read(written(tmp_path))
    assert found.x.tolist() == [[-1.0, -1.0], [0.0, 1.0], [1.0, -1.0]]
    assert found.y.tolist() == [0, 1, 1]
    assert found.notices == ("Ignored columns that are not in the schema: patient, clinic, part.",)
    assert found.test is None


def test_ids_are_roles_not_features(tmp_path: Path) -> None:
    found = read(written(tmp_path), roles=Roles(unit="patient", natural="clinic"))
    assert found.unit is not None
    assert found.natural is not None
    assert found.unit.tolist() == ["p1", "p1", "p2"]
    assert found.natural.tolist() == ["A", "A", "B"]
    assert found.schema is not None
    assert found.schema.unit == "patient"
    assert found.notices == ("Ignored columns that are not in the schema: part.",)


def test_a_column_marks_the_test_part(tmp_path: Path) -> None:
    found = read(written(tmp_path), roles=Roles(test="part"))
    assert found.x[:, 0].tolist() == [-1.0, 1.0]
    assert found.test is not None
    assert found.test[0].tolist() == [[0.0, 1.0]]
    assert found.test[1].tolist() == [1]
    assert len(found.prints) == 2


@pytest.mark.parametrize(("word", "held"), [("1", 1), ("TRUE", 1), ("test", 1), ("0", 0), ("no", 0), ("", 0)])
def test_the_words_that_mark_it(word: str, held: int, tmp_path: Path) -> None:
    path = written(tmp_path, f"age,sex,ill,part\n1,f,no,{word}\n2,m,no,0\n")
    found = read(path, roles=Roles(test="part"))
    assert found.test is not None
    assert len(found.test[1]) == held


def test_common_bounds_make_every_other_column_a_number(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,kind,who\n0,10,x,1\n5,2.5,y,2\n")
    found = read(path, schema=None, bounds=(0.0, 10.0), classes=("x", "y"), roles=Roles(label="kind", unit="who"))
    assert found.x.tolist() == [[-1.0, 1.0], [0.0, -0.5]]
    assert found.schema is not None
    assert found.schema.names == ("a", "b")


def test_classes_that_are_given_go_before_those_of_the_schema(tmp_path: Path) -> None:
    assert read(written(tmp_path), classes=("yes", "no")).y.tolist() == [1, 0, 0]


def test_prints_are_of_a_record_and_not_of_its_label_or_place(tmp_path: Path) -> None:
    one = read(written(tmp_path, "age,sex,ill\n1,f,no\n2,m,yes\n"))
    other = read(written(tmp_path, "sex,ill,age\nm,no,2\nf,yes,1.0\n"))
    assert one.prints == list(reversed(other.prints))


@pytest.mark.parametrize(
    ("text", "given", "line"),
    [
        (
            TEXT,
            {"schema": None, "bounds": (0.0, 1.0), "classes": ("a", "b")},
            "Expected a label column for PATH: give --label (key: label), one of age, sex, ill, patient, clinic, part.",
        ),
        (
            TEXT,
            {"roles": Roles(unit="person")},
            "Expected unit column 'person' (--unit) in PATH, got columns age, sex, ill, patient, clinic, part.",
        ),
        ("age,ill\n1,no\n", {}, "Expected column 'sex' of the schema in PATH, got columns age, ill."),
        ("age,sex,ill\n", {}, "Expected records in PATH, got only a header."),
        (
            TEXT,
            {"schema": None, "roles": Roles(label="ill"), "classes": ("no", "yes")},
            "Expected declared columns for PATH: give --schema (key: schema_file), or at a site bounds; none is "
            "taken from the data.",
        ),
        (
            TEXT,
            {"schema": None, "roles": Roles(label="ill"), "bounds": (0.0, 1.0)},
            "Expected declared classes for label 'ill' of PATH: give --classes a,b (key: classes); never taken "
            "from the data.",
        ),
        (
            "age,sex,ill\nold,f,no\n",
            {},
            "PATH: Expected a number in column 'age', row 1, got 'old'.",
        ),
        (
            "age,sex,ill\n1,f,maybe\n",
            {},
            "PATH: Label 'maybe' in row 1 is not one of the declared classes (no, yes); mend it or --classes.",
        ),
        (
            "age,sex,ill\n1,x,no\n",
            {},
            "PATH: Value 'x' in column 'sex', row 1, is not one of its declared categories (f, m); declare it, or "
            "other = CATEGORY for all such values.",
        ),
        (
            "age,sex,ill,who\n1,f,no,\n",
            {"roles": Roles(unit="who")},
            "Empty or NaN cell in id column 'who', row 1; every record needs an id.",
        ),
    ],
)
def test_what_is_refused(text: str, given: dict[str, Any], line: str, tmp_path: Path) -> None:
    refused(written(tmp_path, text), line, **given)


def test_on_a_site_bad_records_are_left_out_one_by_one(tmp_path: Path) -> None:
    text = "age,sex,ill,who\n1,f,no,a\nold,f,no,b\n3,x,no,c\n4,m,maybe,d\n5,m,yes,\n6,f,yes,f\n"
    found = read(written(tmp_path, text), roles=Roles(unit="who"), lenient=True)
    assert found.unit is not None
    assert found.unit.tolist() == ["a", "f"]
    assert sorted(f.row for f in found.faults.shown) == [2, 3, 4, 5]
    assert len(found.prints) == 2
    alone = read(written(tmp_path, "age,sex,ill,who\n1,f,no,a\n6,f,yes,f\n"), roles=Roles(unit="who"))
    assert alone.prints == found.prints
    assert alone.x.tolist() == found.x.tolist()


def test_on_a_site_an_empty_table_is_no_error(tmp_path: Path) -> None:
    assert read(written(tmp_path, "age,sex,ill\n"), lenient=True).x.shape == (0, 2)
