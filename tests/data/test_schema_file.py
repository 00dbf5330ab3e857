"""Schema files: TOML and YAML alike, unknown keys with the nearest known one, one line for each mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from prismfl.data.schema import Column, Schema
from prismfl.data.schema_file import parse_schema, read_content, read_schema, schema_toml
from prismfl.errors import UserError

GOOD: dict[str, Any] = {
    "label": "ill",
    "classes": ["no", "yes"],
    "columns": [{"name": "age", "min": 0, "max": 100}, {"name": "sex", "type": "binary", "categories": ["f", "m"]}],
}
SCHEMA = Schema(
    (Column("age", min=0.0, max=100.0), Column("sex", type="binary", categories=("f", "m"))), "ill", ("no", "yes")
)


def test_plain_content_is_a_schema() -> None:
    assert parse_schema(GOOD, where="s") == SCHEMA


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "s.toml", tmp_path / "s.yaml"
    toml.write_text(
        'label = "ill"\nclasses = ["no", "yes"]\n[[columns]]\nname = "age"\nmin = 0\nmax = 100\n'
        '[[columns]]\nname = "sex"\ntype = "binary"\ncategories = ["f", "m"]\n'
    )
    yaml.write_text(
        "label: ill\nclasses: ['no', 'yes']\ncolumns:\n- {name: age, min: 0, max: 100}\n"
        "- {name: sex, type: binary, categories: [f, m]}\n"
    )
    assert read_schema(toml) == read_schema(yaml) == SCHEMA


def test_every_word_of_a_column_is_read() -> None:
    column = {"name": "dose", "min": 1, "max": 9, "integer": True, "scale": "log", "missing": 2}
    (found,) = parse_schema({**GOOD, "columns": [column]}, where="s").columns
    assert found == Column("dose", min=1.0, max=9.0, integer=True, scale="log", missing=2)


def test_numbers_as_classes_are_names() -> None:
    assert parse_schema({**GOOD, "classes": [0, 1.0]}, where="s").classes == ("0", "1")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"lable": "ill"}, "Unknown key 'lable' in s; did you mean 'label'?"),
        (
            {"zzz": 1},
            "Unknown key 'zzz' in s; known keys: columns, label, classes, unit, train_size, unit_rows, label_per_unit, "
            "constraints.",
        ),
        ({"train_size": "many"}, "Expected a whole number as train_size in s, got 'many'."),
        ({"train_size": True}, "Expected a whole number as train_size in s, got True."),
        ({"columns": "age"}, "Expected a list for columns in s, got str."),
        ({"columns": [1]}, "Expected keys and values in a column of s, got int."),
        ({"columns": [{"min": 1}]}, "Expected key 'name' in every column of s."),
        (
            {"columns": [{"name": "a", "minimum": 1}]},
            "Unknown key 'minimum' in column 'a' of s; did you mean 'min'?",
        ),
        (
            {"columns": [{"name": "a", "min": "0", "max": 1}]},
            "Expected a number as min of column 'a' of s, got '0'.",
        ),
        (
            {"columns": [{"name": "a", "min": 0, "max": 1, "integer": "yes"}]},
            "Expected true or false as integer of column 'a' of s, got 'yes'.",
        ),
        (
            {"columns": [{"name": "a", "min": 0, "max": 1, "missing": []}]},
            "Expected true, a number or text as missing of column 'a' of s, got [].",
        ),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as error:
        parse_schema({**GOOD, **change}, where="s")
    assert str(error.value) == line


@pytest.mark.parametrize("key", ["columns", "label", "classes"])
def test_what_must_be_there_is_asked_for(key: str) -> None:
    rest = {k: v for k, v in GOOD.items() if k != key}
    with pytest.raises(UserError) as error:
        parse_schema(rest, where="s")
    assert str(error.value) == f"Expected key '{key}' in s, got {', '.join(rest)}."


@pytest.mark.parametrize(
    ("name", "raw", "line"),
    [
        ("s.toml", b"\xff", "Expected UTF-8 text in schema PATH."),
        ("s.toml", b"a = [", "Expected valid TOML or YAML in schema PATH: "),
        ("s.yaml", b"a: &x 1\nb: *x\n", "Expected valid TOML or YAML in schema PATH: aliases (*name) are not allowed."),
        ("s.yaml", b"[" * 30, "Expected valid TOML or YAML in schema PATH: nested more than 20 deep."),
        ("s.yaml", b"a: 2020-99-99\n", "Expected valid TOML or YAML in schema PATH: a value in it cannot be read."),
    ],
)
def test_files_that_cannot_be_read(name: str, raw: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(UserError) as error:
        read_content(path)
    assert str(error.value).startswith(line.replace("PATH", str(path)))
    assert "\n" not in str(error.value)


def test_no_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(UserError) as error:
        read_schema(path)
    assert str(error.value) == (f"Expected a schema file at {path}: Cannot read '{path}': No such file or directory.")


def test_all_bounds_that_are_still_open_are_named_at_once() -> None:
    columns = [
        {"name": "born", "type": "date"},
        {"name": "weight", "type": "numeric", "min": 0},
        {"name": "height"},
        {"name": "sex", "type": "binary", "categories": ["f", "m"]},
        {"name": "age", "type": "numeric", "min": 0, "max": 120},
    ]
    with pytest.raises(UserError) as error:
        parse_schema({"columns": columns, "label": "y", "classes": ["0", "1"]}, where="s.toml")
    assert str(error.value) == (
        "Expected declared min and max for the columns 'born', 'weight' and 'height' of s.toml; bounds are never taken "
        "from the data."
    )


def test_a_difference_is_written_and_read_back() -> None:
    columns = [{"name": "a", "min": 0, "max": 9}, {"name": "b", "min": 0, "max": 99}]
    content = {**GOOD, "columns": columns, "constraints": [{"rule": "a <= b", "within": 20}]}
    schema = parse_schema(content, where="s")
    assert schema.constraints[0].within == 20
    assert parse_schema(tomllib.loads(schema_toml(schema)), where="s") == schema
    for wrong in ("x", True):
        with pytest.raises(UserError, match="Expected a number as within of a constraint of s"):
            parse_schema({**content, "constraints": [{"rule": "a <= b", "within": wrong}]}, where="s")
    pairs = {"columns": ["a", "b"], "allowed": [["1", "2"]], "within": 3}
    with pytest.raises(UserError, match="Expected no key 'within' beside columns"):
        parse_schema({**content, "constraints": [pairs]}, where="s")
