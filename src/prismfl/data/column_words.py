"""A column's declaration in a few words, as people type it: `18..100,integer,missing=60`, or `female,male`."""

from __future__ import annotations

import re
from typing import Any

from prismfl.data.schema import plain
from prismfl.errors import UserError

LEFT_OUT = "-"
HOW = "LOW..HIGH for a number (add integer, log or missing=VALUE after a comma), a,b,c for a choice, - to leave it out"
WITH_BOUNDS = ("numeric", "date")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_DAY, _CLOCK = r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?", r"\d\d:\d\d(?::\d\d)?"
_ENDS = {"numeric": _NUMBER, "date": _DAY, "time": _CLOCK}
_BOUNDS = {kind: re.compile(rf"\s*({end})\s*\.\.\s*({end})\s*") for kind, end in _ENDS.items()}


def parse_column(name: str, words: str) -> dict[str, Any] | None:
    """The keys of a schema's column that the words mean; None where it is left out."""
    if words.strip() == LEFT_OUT:
        return None
    parts = [part.strip() for part in words.split(",") if part.strip()]
    found: dict[str, Any] = {"name": name}
    rest = []
    for part in parts:
        bounds = _bounds(part)
        if bounds is not None:
            found |= bounds
        elif part == "missing":
            found["missing"] = True  # an empty cell is a value of its own
        elif part.startswith("missing="):
            found["missing"] = part.removeprefix("missing=").strip()
        elif part == "integer":
            found["integer"] = True
        elif part == "log":
            found["scale"] = "log"
        else:
            rest.append(part)
    if ("min" in found) == bool(rest) or (rest and len(rest) < 2):
        raise UserError(f"Expected {HOW} as --column {name}=..., got '{words}'.")
    if rest:
        found |= {"type": "binary" if len(rest) == 2 else "categorical", "categories": rest}
    elif isinstance(found.get("missing"), str) and found["type"] == "numeric":
        found["missing"] = _given_number(name, found["missing"])
    return found


def column_words(column: dict[str, Any]) -> str | None:
    """The words that mean a column; None where its bounds are still open, or no words do. What else a draft says of it
    has no words."""
    if column.get("categories"):
        parts = [plain(category) for category in column["categories"]]
        parts = parts if len(parts) > 1 and all(_simple(part) for part in parts) else []
    else:
        ends = [f"{end:.17g}" if isinstance(end, float) else f"{end}" for end in (column.get("min"), column.get("max"))]
        parts = ["..".join(ends)] if {"min", "max"} <= column.keys() else []
    if not parts:
        return None
    more = ["integer"] * bool(column.get("integer")) + ["log"] * (column.get("scale") == "log")
    if column.get("missing") is not None:
        more.append("missing" if column["missing"] is True else f"missing={column['missing']}")
    return ",".join([*parts, *more])


def _bounds(part: str) -> dict[str, Any] | None:
    """Bounds of a number, a day or a time of day; None where the words are none."""
    for kind, form in _BOUNDS.items():
        if found := form.fullmatch(part):
            ends = [_number(end) if kind == "numeric" else end for end in (found[1], found[2])]
            return {"type": kind, "min": ends[0], "max": ends[1]}
    return None


def _simple(part: str) -> bool:
    """Whether a category can stand among words without being taken for something else."""
    odd = part in ("integer", "log", "missing", LEFT_OUT) or part.startswith("missing=")
    return bool(part) and not odd and "," not in part and part == part.strip() and _bounds(part) is None


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _given_number(name: str, text: str) -> float | int:
    try:
        return _number(text)
    except ValueError:
        raise UserError(f"Expected a number as missing in --column {name}=..., got '{text}'.") from None
