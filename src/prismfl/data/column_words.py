"""A column's declaration in a few words, as people type it: `18..100,integer,missing=60`, or `female,male`."""

from __future__ import annotations

import re
from typing import Any

from prismfl.data.schema import plain
from prismfl.errors import UserError

LEFT_OUT = "-"
HOW = "LOW..HIGH for a number (add integer, log or missing=VALUE after a comma), a,b,c for a choice, - to leave it out"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BOUNDS = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*")


def parse_column(name: str, words: str) -> dict[str, Any] | None:
    """The keys of a schema's column that the words mean; None where it is left out."""
    if words.strip() == LEFT_OUT:
        return None
    parts = [part.strip() for part in words.split(",") if part.strip()]
    found: dict[str, Any] = {"name": name}
    rest = []
    for part in parts:
        bounds = _BOUNDS.fullmatch(part)
        if bounds:
            found |= {"type": "numeric", "min": _number(bounds[1]), "max": _number(bounds[2])}
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
    elif "missing" in found:
        found["missing"] = _given_number(name, found["missing"])
    return found


def column_words(column: dict[str, Any]) -> str | None:
    """The words that mean a column; None where its bounds are still open, or no words do."""
    if set(column) - {"name", "type", "min", "max", "categories", "integer", "scale", "missing"}:
        return None
    if column.get("categories"):
        parts = [plain(category) for category in column["categories"]]
        parts = parts if len(parts) > 1 and all(_simple(part) for part in parts) else []
    else:
        parts = [f"{column['min']:g}..{column['max']:g}"] if {"min", "max"} <= column.keys() else []
    if not parts:
        return None
    more = ["integer"] * bool(column.get("integer")) + ["log"] * (column.get("scale") == "log")
    return ",".join([*parts, *more, *([f"missing={column['missing']}"] if "missing" in column else [])])


def _simple(part: str) -> bool:
    """Whether a category can stand among words without being taken for something else."""
    odd = part in ("integer", "log", LEFT_OUT) or part.startswith("missing=") or "," in part or part != part.strip()
    return bool(part) and not odd and not _BOUNDS.fullmatch(part)


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _given_number(name: str, text: str) -> float | int:
    try:
        return _number(text)
    except ValueError:
        raise UserError(f"Expected a number as missing in --column {name}=..., got '{text}'.") from None
