"""A schema file drafted from what columns look like, for a person to confirm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from prismfl.data.cells import SECONDS, instant, is_missing, moment_words, number_of, plain
from prismfl.data.columns import Columns, read_columns
from prismfl.data.found import TABLES
from prismfl.data.looks import Look, are_codes, constant_in, decimals_of, format_of, is_id, look_of, signs_of, step_of
from prismfl.data.schema import listed
from prismfl.errors import UserError
from prismfl.files.written import toml_value as _quoted

UNIT_ROWS = 10
FAR = 10  # times the median that the largest number of a long tail is
MOST_CLASSES = 20  # whole numbers as a label: more are a quantity
EXAMPLE = ("# [[constraints]]  # what must hold in every row, for example:",)
WITHIN = "# within = 60  # days, public: the most that the later one is later; then the time between them is kept"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
HINTS = {
    "empty": "holds no value in any row; leave it out of the schema, or --drop it",
    "date": 'holds dates; declare type = "date" with min and max, and format where it is not ISO',
    "time": 'holds times of day; declare type = "time"',
    "comma": "holds numbers with other signs; declare decimal and thousands",
    "text": 'holds free text, which cannot be made private this way; declare type = "text" to leave it out, or code it '
    "into declared categories",
}
SEVERAL = "holds dates in several formats, which no one format reads; leave it out, or bring them into one"


def load_columns(path: Path) -> Columns:
    """The raw columns of a CSV or Parquet file."""
    if not path.exists():
        raise UserError(f"Expected a CSV or Parquet file at {path}, but there is nothing.")
    if not path.name.endswith(TABLES):
        raise UserError(f"Expected a .csv, .tsv or .parquet file, got {path}.")
    return read_columns(path)


def draft(
    path: Path,
    *,
    label: str | None,
    unit: str | None,
    bounds_from_data: bool,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """A schema file in TOML, and what a person should know about it.

    `keep` are the columns to take alone (beside label and unit), `drop` those to leave out.
    """
    table = load_columns(path)
    roles = [("label", label), ("unit", unit), *(("--keep", name) for name in keep), *(("--drop", n) for n in drop)]
    for role, name in roles:
        if name is not None and name not in table:
            raise UserError(f"Expected {role} column '{name}' in {path}, got columns {', '.join(table)}.")
    made = _Draft(table, unit, bounds_from_data=bounds_from_data, notes=[])
    lines = ["# A draft: confirm every line, and take bounds and categories from a public document.", ""]
    lines += made.top(label)
    for name in table:
        predicted = name == label and made.is_quantity(name)
        if predicted or (name not in (label, unit, *drop) and (not keep or name in keep)):
            lines += made.column(name)
    lines += made.example([name for name in table if name not in drop and (not keep or name in keep)])
    if bounds_from_data:
        made.notes.append(
            "Bounds were read off the records and are private; replace them by public ones before any release."
        )
    return "\n".join(lines) + "\n", made.notes


@dataclass(frozen=True)
class _Draft:
    """The lines of a draft, column by column."""

    table: Columns
    unit: str | None
    bounds_from_data: bool
    notes: list[str]

    def top(self, label: str | None) -> list[str]:
        lines: list[str] = []
        if label is not None:
            lines += [f"label = {_quoted(label)}"]
            if self.is_quantity(label):
                lines[-1] += "  # a number: regression; declare classes instead of its column to predict classes"
            else:
                lines.append(f"classes = {_quoted(_distinct(self.table[label]))}  # confirm")
            if self._constant(label) and not self.is_quantity(label):
                lines.append("label_per_unit = true  # confirm: the same in all rows of a unit")
        if self.unit is not None:
            lines += [f"unit = {_quoted(self.unit)}", f"unit_rows = {UNIT_ROWS}  # the most rows of a unit, public"]
        return [*lines, "# train_size = 1000  # a public, rounded number of records (of units, where there is one)"]

    def is_quantity(self, label: str) -> bool:
        """Whether a label is a number to be predicted, not a class: it has fractions, or many values."""
        values = self.table[label]
        look = "categorical" if are_codes(values) else look_of(values)
        return look in ("number", "comma") or (look == "integer" and len(_distinct(values)) > MOST_CLASSES)

    def column(self, name: str) -> list[str]:
        values = self.table[name]
        head = ["", "[[columns]]", f"name = {_quoted(name)}"]
        look: Look = "categorical" if are_codes(values) else look_of(values)
        if is_id(name, values) and look not in ("number", "date", "time"):
            return [*head, 'type = "id"  # never released; new ones are made']
        if look == "empty":
            self.notes.append(f"Column '{name}' {HINTS[look]}. It is not in the draft.")
            return []
        if look == "text":
            self.notes.append(f"Column '{name}' holds free text: it is left out.")
            return [*head, 'type = "text"  # left out']
        if look == "date" and format_of(values) is None:
            self.notes.append(f"Column '{name}' {SEVERAL}. It is not in the draft.")
            return []
        lines = self._choice(name) if look in ("binary", "categorical") else self._number(values, look)
        if any(is_missing(v) for v in values):
            lines.append("missing = true  # a value of its own")
        if self._constant(name):
            lines.append("per_unit = true  # confirm: the same in all rows of a unit")
        return head + lines

    def _choice(self, name: str) -> list[str]:
        found = _distinct(self.table[name])
        odd = [cell for cell in found if cell.startswith(FORMULA) and number_of(cell) is None]
        if odd:
            self.notes.append(f"Column '{name}' has categories that a spreadsheet takes for formulas: {listed(odd)}.")
        kind = "binary" if len(found) == 2 else "categorical"
        return [f'type = "{kind}"', f"categories = {_quoted(found)}  # confirm; `other` names one for all other values"]

    def _number(self, values: Sequence[Any], look: Look) -> list[str]:
        if look in ("date", "time"):
            return self._moment(values, clock=look == "time")
        cells = [plain(v) for v in values if not is_missing(v)]
        decimal, thousands = (signs_of(set(cells)) or (".", "")) if look == "comma" else (".", "")
        numbers = [n for v in values if not is_missing(v) and (n := number_of(v, decimal, thousands)) is not None]
        lines = ['type = "numeric"', *self._bounds([repr(float(n)) for n in (min(numbers), max(numbers))])]
        if min(numbers) >= 0 and max(numbers) > FAR * median(numbers) > 0:
            lines.append('scale = "log"  # confirm: most are small beside a few; finer where they are')
        if look == "comma":
            lines += [f"decimal = {_quoted(decimal)}  # confirm"]
            lines += [f"thousands = {_quoted(thousands)}  # confirm"] if thousands else []
        if all(float(n).is_integer() for n in numbers):
            return [*lines, "integer = true"]
        return [*lines, f"decimals = {decimals_of(cells, decimal)}"]

    def _moment(self, values: Sequence[Any], *, clock: bool) -> list[str]:
        form = format_of(values, clock=clock)
        moments = [m for v in values if not is_missing(v) and (m := instant(v, form or None, clock=clock)) is not None]
        step = step_of(moments)
        told = "%Y-%m-%d" if step == "day" else "%Y-%m-%dT%H:%M:%S"
        lines = ['type = "time"  # of the whole day, or within a min and a max'] if clock else ['type = "date"']
        last = max(moments) if max(moments) > min(moments) else max(moments) + SECONDS[step]  # of one day, two
        if not clock:
            lines += self._bounds([_quoted(moment_words(m, told)) for m in (min(moments), last)])
        lines += [f"format = {_quoted(form)}  # confirm"] if form else []
        return [*lines, f'step = "{step}"']

    def _bounds(self, ends: Sequence[str]) -> list[str]:
        if not self.bounds_from_data:
            return ["# min =   # a public lower bound", "# max =   # an upper one"]
        return [f"{key} = {end}  # from the records: private" for key, end in zip(("min", "max"), ends)]

    def example(self, names: Sequence[str]) -> list[str]:
        """A rule between two dates, to be taken or not."""
        dates = [name for name in names if look_of(self.table[name]) == "date"][-2:]
        if len(dates) < 2:
            return []
        rule = " <= ".join(f'"{name}"' if re.search('[<>="]', name) else name for name in dates)
        return [
            "",
            "# [[constraints]]  # what must hold in every row, for example:",
            f"# rule = {_quoted(rule)}",
            WITHIN,
        ]

    def _constant(self, name: str) -> bool:
        return self.unit is not None and constant_in(self.table[self.unit], self.table[name])


def _distinct(values: Sequence[Any]) -> list[str]:
    return sorted({plain(v) for v in values if not is_missing(v)})


__all__ = ["HINTS", "Columns", "draft", "load_columns", "look_of", "number_of"]
