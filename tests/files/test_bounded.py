"""What others may have written, read within bounds: exact lines, and values that come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.errors import UserError
from prismfl.files.bounded import (
    DEPTH,
    KEY_PARTS,
    SCALAR_LIMIT,
    TEXT_LIMIT,
    load_json,
    load_toml,
    load_yaml,
    open_regular,
    read_json,
    read_text,
)

PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@given(PLAIN)
def test_json_comes_back(value: Any) -> None:
    assert load_json(json.dumps(value), depth=20) == value
    assert load_json(json.dumps(value).encode(), depth=20) == value


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(-99, 99), max_size=4))
def test_toml_and_yaml_of_plain_settings_come_back(value: dict[str, int]) -> None:
    text = "\n".join(f"{k} = {v}" for k, v in value.items())
    assert load_toml(text, "it") == value
    assert (load_yaml(json.dumps(value), "it") or {}) == value


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"a": 1, "a": 2}', "not readable JSON"),
        ("[NaN]", "not readable JSON"),
        ("[1e999]", "not readable JSON"),
        ("[-Infinity]", "not readable JSON"),
        ("{", "not readable JSON"),
        (b"\xff", "not readable JSON"),
        ("[[[1]]]", "nested deeper than 1"),
        ("[" * 100_000, "not readable JSON"),
    ],
)
def test_json_with_second_meanings_is_refused_without_quoting_it(raw: str | bytes, words: str) -> None:
    with pytest.raises(ValueError) as error:
        load_json(raw, depth=1)
    assert str(error.value) == words


@pytest.mark.parametrize(("raw", "depth"), [("1", 0), ("[1]", 1), ('{"a": [1]}', 2), ("[[[1]]]", 3)])
def test_depth_counts_what_is_inside(raw: str, depth: int) -> None:
    load_json(raw, depth=depth)
    if depth:
        with pytest.raises(ValueError, match="nested deeper"):
            load_json(raw, depth=depth - 2)


def test_a_json_file_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text("{")
    with pytest.raises(UserError) as error:
        read_json(path)
    assert str(error.value) == f"'{path}' cannot be used: not readable JSON."


def test_text_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\xff")
    with pytest.raises(UserError) as error:
        read_text(path)
    assert str(error.value) == f"'{path}' is not UTF-8 text."


def test_text_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("12345")
    assert read_text(path, limit=5) == "12345"
    with pytest.raises(UserError) as error:
        read_text(path, limit=4)
    assert str(error.value) == f"Expected at most 4 bytes in {path}, got more; it is larger than the limit."


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        open_regular(tmp_path, limit=5)
    assert str(error.value) == f"Expected a regular file at {tmp_path}, got a folder, pipe, device or socket."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a" * (TEXT_LIMIT + 1), f"it is larger than the limit of {TEXT_LIMIT} characters."),
        (".".join("a" * (KEY_PARTS + 2)) + " = 1", f"it has a key of more than {KEY_PARTS} parts."),
        ("a = ", "it is not well-formed: "),
        ("a = 1\na = 2", "it is not well-formed: "),
    ],
)
def test_toml_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        load_toml(text, "it")
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_dots_inside_texts_and_comments_are_no_key() -> None:
    dots = "." * (KEY_PARTS + 1)
    assert load_toml(f"a = \"{dots}\"  # {dots}\nb = '{dots}'", "it") == {"a": dots, "b": dots}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: &x 1", "it has YAML anchors or aliases, which are not allowed here; write it out."),
        ("[" * (DEPTH + 1), "it is nested too deeply."),
        ("a" * (SCALAR_LIMIT + 1), f"it has a value of more than {SCALAR_LIMIT} characters."),
        ("a: [", "it is not well-formed: "),
        ("a: 2020-13-13", "it is not well-formed: "),
        ("!!python/object:os.system x", "it is not well-formed: "),
    ],
)
def test_yaml_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        load_yaml(text, "it")
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
