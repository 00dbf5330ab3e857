"""What a column looks like (a number, a choice, a date, free text), and a schema file drafted from it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from prismfl.data.columns import Columns, read_columns
from prismfl.data.found import TABLES
from prismfl.data.schema import is_missing, plain
from prismfl.errors import UserError

Look = Literal["empty", "date", "text", "binary", "categorical", "integer", "number"]
MOST_CATEGORIES = 60
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?")
HINTS = {
    "empty": "holds no value in any row; leave it out of the table and the schema",
    "date": "holds dates; turn them into numbers first (days since a public day, or an age in years)",
    "text": "holds free text, which cannot be made private this way; leave it out, or code it into declared categories",
}


def load_columns(path: Path) -> Columns:
    """The raw columns of a CSV or Parquet file."""
    if not path.exists():
        raise UserError(f"Expected a CSV or Parquet file at {path}, but there is nothing.")
    if not path.name.endswith(TABLES):
        raise UserError(f"Expected a .csv, .tsv or .parquet file, got {path}.")
    return read_columns(path)


def draft(path: Path, *, label: str | None, unit: str | None, bounds_from_data: bool) -> tuple[str, list[str]]:
    """A schema file in TOML, and what a person should know about it."""
    table = load_columns(path)
    for role, name in (("label", label), ("unit", unit)):
        if name is not None and name not in table:
            raise UserError(f"Expected {role} column '{name}' in {path}, got columns {', '.join(table)}.")
    lines = ["# A draft: confirm every line, and take bounds and categories from a public document.", ""]
    notes: list[str] = []
    if label is not None:
        lines += [f"label = {_quoted(label)}", f"classes = {_quoted(_distinct(table[label]))}  # confirm"]
    if unit is not None:
        lines.append(f"unit = {_quoted(unit)}")
    lines.append("# train_size = 1000  # a public, rounded number of records")
    for name in table:
        if name in (label, unit):
            continue
        look = look_of(table[name])
        if look in HINTS:
            notes.append(f"Column '{name}' {HINTS[look]}. It is not in the draft.")
            continue
        lines += ["", "[[columns]]", f"name = {_quoted(name)}"]
        lines += _described(table[name], look, bounds_from_data=bounds_from_data)
    if bounds_from_data:
        notes.append(
            "Bounds were read off the records and are private; replace them by public ones before any release."
        )
    return "\n".join(lines) + "\n", notes


def look_of(values: Sequence[Any]) -> Look:
    """The type that a column of cells looks like."""
    cells = [plain(v) for v in values if not is_missing(v)]
    if not cells:
        return "empty"
    distinct = set(cells)
    numbers = [number_of(c) for c in distinct]
    if all(n is not None for n in numbers):
        if len(distinct) <= 2:
            return "binary"
        return "integer" if all(float(n or 0).is_integer() for n in numbers) else "number"
    if sum(_DATE.fullmatch(c) is not None for c in distinct) > 0.8 * len(distinct):
        return "date"
    if len(distinct) > min(MOST_CATEGORIES, max(2, len(cells) // 2)):
        return "text"
    return "binary" if len(distinct) == 2 else "categorical"


def _described(values: Sequence[Any], look: Look, *, bounds_from_data: bool) -> list[str]:
    lines: list[str] = []
    if look in ("binary", "categorical"):
        distinct = _distinct(values)
        kind = "binary" if len(distinct) == 2 else "categorical"
        lines += [f'type = "{kind}"', f"categories = {_quoted(distinct)}  # confirm"]
    else:
        lines.append('type = "numeric"')
        lines += (
            _bounds(values) if bounds_from_data else ["# min =   # a public lower bound", "# max =   # an upper one"]
        )
        if look == "integer":
            lines.append("integer = true")
    if any(is_missing(v) for v in values):
        lines.append("# missing =   # the value that stands for an empty cell")
    return lines


def _bounds(values: Sequence[Any]) -> list[str]:
    numbers = [n for v in values if not is_missing(v) and (n := number_of(plain(v))) is not None]
    return [
        f"min = {min(numbers)!r}  # from the records: private",
        f"max = {max(numbers)!r}  # from the records: private",
    ]


def _distinct(values: Sequence[Any]) -> list[str]:
    return sorted({plain(v) for v in values if not is_missing(v)})


def number_of(cell: str) -> float | None:
    """A cell as a number, None where it is none."""
    try:
        return float(cell)
    except ValueError:
        return None


def _quoted(value: str | list[str]) -> str:
    """JSON strings and lists of them are TOML too."""
    return json.dumps(value, ensure_ascii=False)


__all__ = ["HINTS", "Columns", "draft", "load_columns", "look_of", "number_of"]
