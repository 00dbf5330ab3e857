from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.data import Column, Schema
from prismfl.data.cells import instant
from prismfl.data.constraints import Constraint
from prismfl.data.made import made_table
from prismfl.data.schema import words
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError
from prismfl.rng import Key

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
        (
            'type = "categorical"',
            'type = "text"',
            r"Expected no key 'categories' in column 'colour'.*: it is text",
        ),
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


GAPS = Schema(
    columns=(
        Column("height", min=100, max=220, missing=True),
        Column("visits", min=0, max=9, integer=True, missing=True),
        Column("sex", type="binary", categories=("f", "m"), missing=True),
        Column("blood", type="categorical", categories=("A", "B"), missing=True),
    ),
    label="ill",
    classes=("0", "1"),
)
WITH_GAPS: dict[str, Sequence[object]] = {
    "height": ["160", "", "NA"],
    "visits": [9, np.nan, 0],
    "sex": ["f", None, "m"],
    "blood": ["", "B", "A"],
}


def test_a_missing_value_is_a_value_of_its_own_by_hand() -> None:
    """A number has a flag behind it and is 0 where it is missing; a choice has one more place."""
    assert words(GAPS) == ("m", "m", "c3", "c3")
    x = GAPS.encode(WITH_GAPS)
    assert x.tolist() == [
        [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0],
        [0.0, 1.0, -1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0],
    ]
    table = GAPS.decode(x)
    assert table["height"].tolist() == pytest.approx([160.0, np.nan, np.nan], nan_ok=True)
    assert table["visits"].tolist() == [9, None, 0]
    assert table["sex"].tolist() == ["f", None, "m"]
    assert table["blood"].tolist() == [None, "B", "A"]


def test_a_filled_in_value_is_no_missing_one() -> None:
    filled = Schema((Column("height", min=100, max=220, missing=160),), "ill", ("0", "1"))
    assert words(filled) == ("n",)
    assert filled.decode(filled.encode({"height": ["", "100"]}))["height"].tolist() == [160.0, 100.0]


def test_undeclared_values_go_to_other_where_one_is_declared() -> None:
    column = Column("ward", type="categorical", categories=("heart", "rest"), other="rest", missing=True)
    schema = Schema((column,), "ill", ("0", "1"))
    made = schema.decode(schema.encode({"ward": ["heart", "=cmd()", "", "\u202eheart", "x" * 100_000]}))
    assert made["ward"].tolist() == ["heart", "rest", None, "rest", "rest"]


def test_dates_and_times_are_read_and_written_in_their_own_format() -> None:
    day = Column("day", type="date", min=instant("2020-01-01"), max=instant("2020-12-31"), format="%d.%m.%Y")
    at = Column("at", type="date", min=instant("2020-01-01"), max=instant("2021-01-01"), step="hour", missing=True)
    clock = Column("clock", type="time", step="15 minutes")
    schema = Schema((day, at, clock), "ill", ("0", "1"))
    table: dict[str, Sequence[object]] = {
        "day": ["05.03.2020", "31.12.2019", date(2020, 12, 31)],
        "at": ["2020-05-06T07:29", "", datetime(2020, 5, 6, 7, 31)],
        "clock": ["00:00", "23:52", "12:14:59"],
    }
    made = schema.decode(schema.encode(table))
    assert made["day"].tolist() == ["05.03.2020", "01.01.2020", "31.12.2020"]  # what lies before the year is clipped
    assert made["at"].tolist() == ["2020-05-06T07:00", None, "2020-05-06T08:00"]
    assert made["clock"].tolist() == ["00:00", "23:45", "12:15"]


def test_numbers_with_commas_and_signs_between_thousands() -> None:
    cost = Column("cost", min=0, max=10_000, decimal=",", thousands=".", decimals=2)
    salary = Column("salary", min=0, max=100_000, thousands=" ", integer=True)
    schema = Schema((cost, salary), "ill", ("0", "1"))
    made = schema.decode(schema.encode({"cost": ["1.234,5", "7", 2.5], "salary": ["12\u00a0345", "100 000", 3]}))
    assert made["cost"].tolist() == pytest.approx([1234.5, 7.0, 2.5], abs=0.01)
    assert made["salary"].tolist() == [12345, 100000, 3]
    with pytest.raises(UserError, match=r"^Expected a number in column 'cost', row 1, got '1,2,3'\.$"):
        schema.encode({"cost": ["1,2,3"], "salary": [1]})


STAYS = Schema(
    columns=(
        Column("left", "date", min=instant("2021-01-01"), max=instant("2024-03-01"), missing=True, format="%d.%m.%Y"),
        Column("came", "date", min=instant("2021-01-01"), max=instant("2023-12-31"), format="%d.%m.%Y"),
        Column("paid", min=0, max=1000, decimals=1),
        Column("billed", min=0, max=1000, decimals=1),
    ),
    label="ill",
    classes=("0", "1"),
    constraints=(Constraint("came", "left", within=30), Constraint("paid", "billed", strict=True, within=100)),
)


def test_a_difference_is_what_is_encoded_and_comes_back_as_the_value() -> None:
    table: dict[str, list[Any]] = {
        "came": ["01.02.2021", "01.02.2021", "01.03.2022", "31.12.2023", "05.05.2022"],
        "left": ["01.02.2021", "16.02.2021", "", "30.01.2024", "04.05.2022"],
        "paid": [10, 20, 30, 40, 50],
        "billed": [10.1, 70.1, 900, 40.1, 20],
    }
    x = STAYS.encode(table)
    assert STAYS.cut_differences(table) == 3
    assert x[:, 0].tolist() == pytest.approx([-1, 0, 0, 1, -1])
    assert x[:, 1].tolist() == [0, 0, 1, 0, 0]
    back = STAYS.decode(x)
    assert back["came"].tolist() == table["came"]
    assert back["left"].tolist() == ["01.02.2021", "16.02.2021", None, "30.01.2024", "05.05.2022"], "not before"
    assert back["billed"].tolist() == pytest.approx([10.1, 70.1, 130, 40.1, 50.1]), "at most 100 more, and more"
    alone = [STAYS.encode({name: cells[i : i + 1] for name, cells in table.items()}) for i in range(5)]
    assert torch.equal(torch.cat(alone), x), "a record's own values alone"


def test_differences_that_were_drawn_keep_their_rule_and_their_distribution() -> None:
    g = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(2000, STAYS.width, generator=g) - 1
    x[:, 0] = -1 + 0.2 * torch.rand(2000, generator=g)
    made = made_table(STAYS, x, torch.zeros(2000, dtype=torch.int64), key=Key.seed(0))
    days = [
        (datetime.strptime(b, "%d.%m.%Y") - datetime.strptime(a, "%d.%m.%Y")).days
        for a, b in zip(made["came"], made["left"])
        if b is not None
    ]
    assert {*range(4)} == set(days), "nothing is piled up at 0"
    assert bool((made["billed"] > made["paid"] + 0.05).sum() >= 1990), "but at the upper bound"


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (Constraint("paid", "billed", strict=True, within=0.05), "Expected within > 0.1 in the constraint"),
        (Constraint("left", "came", within=9), "Expected missing = true for 'came'"),
    ],
)
def test_a_schema_refuses_differences_that_cannot_be(rule: Constraint, line: str) -> None:
    with pytest.raises(UserError, match=line):
        replace(STAYS, constraints=(rule,))


def test_a_number_that_is_predicted_is_not_a_difference() -> None:
    with pytest.raises(UserError, match="its right is the label"):
        replace(STAYS, label="billed", classes=("all",))
