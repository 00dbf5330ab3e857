"""Reading a `Schema` from TOML or YAML: unknown keys are errors, with the nearest known name."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from prismfl.data.columns import MOST_COLUMNS
from prismfl.data.schema import Column, Schema, plain
from prismfl.errors import UserError
from prismfl.files.bounded import read_regular

LIMIT = 4 * 2**20  # bytes
DEPTH = 20
_TOP = ("columns", "label", "classes", "unit", "train_size")
_COLUMN = ("name", "type", "min", "max", "categories", "integer", "scale", "missing")


class _Bounded(yaml.SafeLoader):
    """YAML without aliases, which let a few lines stand for billions, and without deep nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        self.depth += 1
        if self.depth > DEPTH:
            raise yaml.YAMLError(f"nested more than {DEPTH} deep")
        found = super().compose_node(parent, index)
        self.depth -= 1
        return found


def read_schema(path: str | Path) -> Schema:
    """The schema that a TOML or YAML file declares."""
    return parse_schema(read_content(Path(path)), where=f"schema {path}")


def read_content(path: Path) -> object:
    """What a schema file holds, bounded in length, depth and repetition."""
    try:
        text = read_regular(path, limit=LIMIT).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"Expected UTF-8 text in schema {path}.") from None
    except UserError as error:
        raise UserError(f"Expected a schema file at {path}: {error}") from None
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, _Bounded)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise UserError(f"Expected valid TOML or YAML in schema {path}: {' '.join(str(error).split())}.") from None
    except (RecursionError, ValueError):  # brackets in brackets in TOML; a number or date that cannot be
        raise UserError(f"Expected valid TOML or YAML in schema {path}: a value in it cannot be read.") from None


def parse_schema(content: object, *, where: str) -> Schema:
    """A schema from the plain content of a file (or from a config's table)."""
    top = _mapping(content, where)
    _known(top, _TOP, where)
    for key in ("columns", "label", "classes"):
        if key not in top:
            raise UserError(f"Expected key '{key}' in {where}, got {', '.join(top) or 'nothing'}.")
    unit, size = top.get("unit"), top.get("train_size")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int)):
        raise UserError(f"Expected a whole number as train_size in {where}, got {size!r}.")
    columns = _items(top["columns"], f"columns in {where}")
    if len(columns) > MOST_COLUMNS:
        raise UserError(f"Expected at most {MOST_COLUMNS:,} columns in {where}, got {len(columns):,}.")
    return Schema(
        columns=tuple(_column(c, where) for c in columns),
        label=str(top["label"]),
        classes=tuple(plain(c) for c in _items(top["classes"], f"classes in {where}")),
        unit=None if unit is None else str(unit),
        train_size=size,
    )


def _column(content: object, where: str) -> Column:
    raw = _mapping(content, f"a column of {where}")
    if "name" not in raw:
        raise UserError(f"Expected key 'name' in every column of {where}.")
    name = str(raw["name"])
    place = f"column '{name}' of {where}"
    _known(raw, _COLUMN, place)
    missing = raw.get("missing")
    if missing is not None and not isinstance(missing, int | float | str):
        raise UserError(f"Expected a number or text as missing of {place}, got {missing!r}.")
    return Column(
        name=name,
        type=str(raw.get("type", "numeric")),  # type: ignore[arg-type]  # Column refuses other words by name
        min=_bound(raw, "min", place),
        max=_bound(raw, "max", place),
        categories=tuple(plain(c) for c in _items(raw.get("categories", []), f"categories of {place}")),
        integer=_flag(raw, "integer", place),
        scale=str(raw.get("scale", "linear")),  # type: ignore[arg-type]
        missing=missing,
    )


def _bound(raw: Mapping[str, object], key: str, place: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"Expected a number as {key} of {place}, got {value!r}.")
    return float(value)


def _flag(raw: Mapping[str, object], key: str, place: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"Expected true or false as {key} of {place}, got {value!r}.")
    return value


def _mapping(content: object, where: str) -> Mapping[str, object]:
    if not isinstance(content, Mapping):
        raise UserError(f"Expected keys and values in {where}, got {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def _items(content: object, where: str) -> list[object]:
    if not isinstance(content, list | tuple):
        raise UserError(f"Expected a list for {where}, got {type(content).__name__}.")
    return list(content)


def _known(raw: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}."
            raise UserError(f"Unknown key '{key}' in {where}; {hint}")
