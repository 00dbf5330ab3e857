from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from prismfl.data import Column, Schema
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError

SCHEMA = Schema(
    columns=(
        Column("age", min=0, max=100, integer=True),
        Column("income", min=0, max=1000, scale="log"),
        Column("colour", type="categorical", categories=("red", "green", "blue")),
        Column("smoker", type="binary", categories=("no", "yes"), missing="no"),
    ),
    label="ill",
    classes=("0", "1"),
)
TABLE: dict[str, Sequence[object]] = {
    "age": ["50", "0", "120"],
    "income": [0.0, 1000.0, 30.0],
    "colour": ["blue", "red", "green"],
    "smoker": ["yes", "", "no"],
}


def test_encoding_by_hand() -> None:
    x = SCHEMA.encode(TABLE)
    log = 2 * np.log1p(30) / np.log1p(1000) - 1
    expected = [[0, -1, 0, 0, 1, 1], [-1, 1, 1, 0, 0, -1], [1, log, 0, 1, 0, -1]]
    assert x.dtype == torch.float32
    assert torch.allclose(x, torch.tensor(expected, dtype=torch.float32))


def test_decoding_gives_typed_columns_back() -> None:
    table = SCHEMA.decode(SCHEMA.encode(TABLE))
    assert table["age"].dtype == np.int64
    assert table["age"].tolist() == [50, 0, 100]  # 120 was cut at the declared bound
    assert table["income"] == pytest.approx([0, 1000, 30], rel=1e-4)
    assert table["colour"].tolist() == ["blue", "red", "green"]
    assert table["smoker"].tolist() == ["yes", "no", "no"]


def test_decoding_takes_what_a_synthesizer_makes() -> None:
    table = SCHEMA.decode(torch.tensor([[3.0, -2.0, 0.1, 0.4, 0.3, 0.2]]))
    assert (table["age"][0], table["income"][0], table["colour"][0], table["smoker"][0]) == (100, 0, "green", "yes")


def test_encoding_does_not_depend_on_the_other_records() -> None:
    alone = SCHEMA.encode({name: values[:1] for name, values in TABLE.items()})
    assert torch.equal(alone, SCHEMA.encode(TABLE)[:1])


def test_labels_match_as_text_whatever_their_type() -> None:
    for values in (["1", "0"], [1, 0], np.array([1.0, 0.0])):
        assert SCHEMA.encode_labels(values).tolist() == [1, 0]
    with pytest.raises(
        UserError, match=r"^Label '2' in row 2 is not one of the declared classes \(0, 1\); mend it or --classes\.$"
    ):
        SCHEMA.encode_labels([0, 2])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("age", ["1", "", "3"], r"Empty or NaN cell in column 'age', row 2"),
        ("age", [1.0, 2.0, np.nan], r"Empty or NaN cell in column 'age', row 3"),
        ("age", [1.0, np.inf, 2.0], r"Expected a finite number in column 'age', row 2, got inf"),
        ("age", ["1", "two", "3"], r"Expected a number in column 'age', row 2, got 'two'"),
        ("colour", ["red", "pink", "red"], r"Value 'pink' in column 'colour', row 2.*\(red, green, blue\)"),
        ("colour", ["red", "red", None], r"Empty or NaN cell in column 'colour', row 3"),
    ],
)
def test_bad_cells_are_named(column: str, values: list[object], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        SCHEMA.encode({**TABLE, column: values})
    assert "\n" not in str(error.value)


TOML = """
label = "ill"
classes = [0, 1]
unit = "patient"
train_size = 500
[[columns]]
name = "age"
min = 0
max = 120
[[columns]]
name = "colour"
type = "categorical"
categories = ["red", "green"]
"""


def test_reading_toml_and_yaml(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    (tmp_path / "s.yaml").write_text(
        "label: ill\nclasses: [0, 1]\nunit: patient\ntrain_size: 500\ncolumns:\n- {name: age, min: 0, max: 120}\n"
        "- {name: colour, type: categorical, categories: [red, green]}\n"
    )
    schema = read_schema(tmp_path / "s.toml")
    assert schema == read_schema(tmp_path / "s.yaml")
    assert (schema.width, schema.unit, schema.classes, schema.train_size) == (3, "patient", ("0", "1"), 500)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max = 120", "maximum = 120", r"Unknown key 'maximum' in column 'age' of schema .*; did you mean 'max'\?"),
        ("max = 120", "", r"Expected declared min and max for numeric column 'age'"),
        ("max = 120", "max = -1", r"Expected finite min < max for column 'age', got min 0.0 and max -1.0"),
        ("max = 120", 'max = "high"', r"Expected a number as max of column 'age'"),
        ('type = "categorical"', 'type = "text"', r"Expected type numeric, categorical or binary for column 'colour'"),
        ('categories = ["red", "green"]', "", r"Expected declared categories for column 'colour'"),
        ("classes = [0, 1]", "classes = [0]", r"Expected at least two declared classes .*, got 0"),
        ("classes = [0, 1]", "", r"Expected key 'classes' in schema"),
        ('name = "colour"', 'name = "age"', r"Expected each column once in the schema, got 'age' twice"),
        ('name = "colour"', 'name = "ill"', r"Expected 'ill' as a feature or as label or unit, not as both"),
        ('label = "ill"', "label = ", r"Expected valid TOML or YAML in schema"),
    ],
)
def test_bad_schema_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(TOML.replace(old, new))
    with pytest.raises(UserError, match=message) as error:
        read_schema(tmp_path / "s.toml")
    assert "\n" not in str(error.value)


def test_missing_schema_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected a schema file at .*none\.toml"):
        read_schema(tmp_path / "none.toml")
