"""The declaration of a table: columns, label and classes, ids, unit and constraints; all public, none fitted on data.

`encode` makes features of cells and `decode` cells of features, column by column (`data/column.py` says how).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prismfl.data.cells import MISSING, Names, instant, is_missing, listed, number_of, plain, shown, value_of
from prismfl.data.column import Column
from prismfl.data.columns import MOST_COLUMNS
from prismfl.data.constraints import Cells, Constraint, measured
from prismfl.data.faults import Faults
from prismfl.data.ids import id_column
from prismfl.errors import CellError, UserError

if TYPE_CHECKING:
    import torch

Values = Sequence[object] | npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

MOST_KNOWN = 100_000  # cells of text that are remembered, so that memory stays bounded
FEW_ROWS = 12  # rows of a unit that are told one by one; more are told by a number
EVERY = ("all",)  # the one class of records that have none


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table, its label column and classes, and the column that names the privacy unit.

    `ids` are columns that are never synthesised (new ones are made), `left_out` those that are not even written.
    `unit_rows` is the declared most rows of a unit: with it, how many rows a unit has is a column of its own.
    A label that is itself a declared number is what a regression predicts: then there are no classes.
    """

    columns: tuple[Column, ...]
    label: str
    classes: tuple[str, ...]
    unit: str | None = None
    train_size: int | None = None
    ids: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unit_rows: int | None = None
    label_per_unit: bool = False
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        if not names:
            raise UserError("Expected at least one column in the schema, got none.")
        if len(names) > MOST_COLUMNS:
            raise UserError(f"Expected at most {MOST_COLUMNS:,} columns in the schema, got {len(names):,}.")
        for name, times in Counter([*names, *self.ids, *self.left_out]).items():
            if times > 1:
                raise UserError(f"Expected each column once in the schema, got '{name}' twice.")
            if (name == self.label and self.target is None) or (name == self.unit and name not in self.ids):
                raise UserError(f"Expected '{name}' as a feature or as label or unit, not as both.")
        self._check_classes()
        self._check_unit()
        for constraint in self.constraints:
            constraint.check(self.columns)
        self._check_measured()
        if self.train_size is not None and self.train_size < 1:
            raise UserError(f"Expected train_size >= 1 in the schema, got {self.train_size}.")

    def _check_classes(self) -> None:
        if self.target is None:
            return check_classes(self.classes)
        if self.classes != EVERY:
            raise UserError(
                f"Expected no classes for the label '{self.label}', a number in the schema: leave out classes to "
                "predict the number, or the column to predict classes."
            )

    def _check_measured(self) -> None:
        for rule in measured(self.constraints):
            if rule.right == self.label:
                raise UserError(f"Expected no within in the constraint '{rule.words}': its right is the label.")

    def _check_unit(self) -> None:
        if self.unit_rows is not None and self.unit_rows < 1:
            raise UserError(f"Expected unit_rows >= 1 in the schema, got {self.unit_rows}.")
        if self.unit_rows is not None and self.unit is None:
            raise UserError("Expected a unit in the schema, whose rows unit_rows counts; got none.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the feature columns, in the declared order."""
        return tuple(c.name for c in self.columns)

    @property
    def target(self) -> Column | None:
        """The number that is predicted, where the label is one of the declared columns and a number."""
        return next((c for c in self.columns if c.name == self.label and c.type == "numeric"), None)

    def predicting(self, label: str, classes: Sequence[str] = ()) -> Schema:
        """The schema with this label, and these classes or those that it has; a declared number has none."""
        number = any(column.name == label and column.type == "numeric" for column in self.columns)
        return replace(self, label=label, classes=tuple(classes) or (EVERY if number else self.classes))

    def narrowed(self, keep: Sequence[str] = (), drop: Sequence[str] = ()) -> Schema:
        """The schema with these columns alone, or without some; label and unit stay. Rules about others go."""
        for name in (*keep, *drop):
            if name not in (*self.names, *self.ids, *self.left_out, self.label, self.unit):
                known = listed([*self.names, *self.ids, *self.left_out])
                raise UserError(f"Expected declared columns in --keep and --drop, got '{name}'; declared: {known}.")
            if name in drop and name in (self.label, self.unit):
                raise UserError(f"Expected columns beside label and unit in --drop, got '{name}'.")
        stay = {n for n in (*self.names, *self.ids, *self.left_out) if (not keep or n in keep) and n not in drop}
        return replace(
            self,
            columns=tuple(column for column in self.columns if column.name in (*stay, self.label)),
            ids=tuple(name for name in self.ids if name in stay or name == self.unit),
            left_out=tuple(name for name in self.left_out if name in stay),
            constraints=tuple(c for c in self.constraints if {c.left, c.right} <= stay),
        )

    @property
    def rows_column(self) -> Column | None:
        """The column that says how many rows a record's unit has, where `unit_rows` is declared."""
        if self.unit_rows is None or self.unit_rows < 2:
            return None
        name = f"rows of {self.unit}"
        if self.unit_rows <= FEW_ROWS:
            return Column(
                name, "ordinal", categories=tuple(str(n) for n in range(1, self.unit_rows + 1)), per_unit=True
            )
        return Column(name, min=1, max=self.unit_rows, integer=True, scale="log", per_unit=True)

    @property
    def encoded(self) -> tuple[Column, ...]:
        """The declared columns, and the number of rows of the unit behind them."""
        rows = self.rows_column
        return self.columns if rows is None else (*self.columns, rows)

    @property
    def width(self) -> int:
        """Features after encoding."""
        return sum(c.width for c in self.encoded)

    def blocks(self) -> Iterator[tuple[Column, slice]]:
        """Each column with the encoded features that belong to it."""
        start = 0
        for column in self.encoded:
            yield column, slice(start, start + column.width)
            start += column.width

    def encode(self, table: Mapping[str, Values], faults: Faults | None = None) -> torch.Tensor:
        """Columns of raw values to float32 features in [-1, 1], one row per record.

        With lenient `faults`, a record that cannot be encoded is noted there and its row means nothing.
        """
        import torch

        noted = faults or Faults()
        for name in self.names:
            if name not in table:
                raise UserError(f"Expected column '{name}', got only {listed(table)}.")
        rows = len(table[self.names[0]])
        out = np.zeros((rows, self.width), dtype=np.float32)
        raw: Cells = {}
        for column, block in self.blocks():
            values = table[column.name] if column in self.columns else self._rows(table, rows, noted)
            if len(values) != rows:
                raise UserError(f"Expected {rows} values in column '{column.name}', got {len(values)}.")
            if column.is_number:
                raw[column.name] = _numbers(values, column, noted)
                continue
            codes = _codes(values, column, noted)
            if column.word == "b":
                out[:, block.start] = 2 * codes - 1
            else:
                out[np.arange(rows), block.start + codes] = 1
        self._put_numbers(out, raw)
        return torch.from_numpy(out)

    def _put_numbers(self, out: npt.NDArray[np.float32], raw: Mapping[str, Floats]) -> None:
        """Numbers as features; those that are measured from another column as the difference."""
        known, rules = (
            {column.name: column for column in self.columns},
            {r.right: r for r in measured(self.constraints)},
        )
        for column, block in self.blocks():
            if not column.is_number:
                continue
            numbers, span, rule = raw[column.name], None, rules.get(column.name)
            if rule is not None:
                # From where the left is put, so that what comes back is the right again.
                start = np.clip(raw[rule.left], *known[rule.left].bounds())
                numbers, span = numbers - start, rule.span(known[rule.left], column)
            gone = np.isnan(numbers)
            out[:, block.start] = np.where(gone, 0.0, column.scaled(numbers, span))
            if column.may_miss:
                out[:, block.start + 1] = gone

    def _difference(self, rule: Constraint, raw: Mapping[str, Floats]) -> tuple[Floats, tuple[float, float]]:
        """How much more the right is than where the left is put, and the least and the most that is declared."""
        known = {column.name: column for column in self.columns}
        left, right = known[rule.left], known[rule.right]
        return raw[rule.right] - np.clip(raw[rule.left], *left.bounds()), rule.span(left, right)

    def cut_differences(self, table: Mapping[str, Values]) -> int:
        """How many differences lie outside what is declared of them, and are cut."""
        found, known = 0, {column.name: column for column in self.columns}
        for rule in measured(self.constraints):
            names, lenient = (rule.left, rule.right), Faults(lenient=True)
            numbers, (low, high) = self._difference(rule, {n: _numbers(table[n], known[n], lenient) for n in names})
            found += int(((numbers < low - 1e-9) | (numbers > high + 1e-9)).sum())
        return found

    def _rows(self, table: Mapping[str, Values], count: int, faults: Faults) -> Values:
        """How many rows the unit of each record has, by its own rows alone; 1 where no unit is told.

        A record that is left out counts for nobody.
        """
        if self.unit is None or self.unit not in table:
            return np.ones(count, dtype=np.int64)
        ids = id_column(table[self.unit], self.unit, Faults(lenient=True))
        names, inverse = np.unique(ids, return_inverse=True)
        sizes = np.bincount(inverse[faults.kept(count)], minlength=len(names))
        assert self.unit_rows is not None
        return np.clip(sizes[inverse], 1, self.unit_rows)

    def encode_labels(self, values: Values, faults: Faults | None = None) -> torch.Tensor:
        """Labels as class numbers in the declared order; all the same where a number is predicted."""
        import torch

        if self.target is not None:
            return torch.zeros(len(values), dtype=torch.int64)
        return torch.from_numpy(class_codes(values, self.classes, faults or Faults()))

    def decode(self, x: torch.Tensor) -> Cells:
        """Features back to typed columns: numbers, text for categories and dates (the largest place wins).

        Takes any real features, such as a synthesizer's: what lies outside the bounds is clipped to them. A missing
        number is NaN, a missing whole number or text None.
        """
        return self.written(self.values(x))

    def values(self, x: torch.Tensor) -> Cells:
        """Features as values to compute with: numbers with NaN where one is missing, codes of categories with -1."""
        raw = x.detach().cpu().numpy().astype(np.float64)
        if raw.ndim != 2 or raw.shape[1] != self.width:
            raise UserError(f"Expected features of shape (n, {self.width}), got {tuple(raw.shape)}.")
        found: Cells = {}
        rules = measured(self.constraints)
        told = {rule.right for rule in rules}
        for column, block in self.blocks():
            part = raw[:, block]
            if column.is_number:
                numbers = part[:, 0] if column.name in told else column.rounded(column.unscaled(part[:, 0]))
                found[column.name] = np.where(part[:, 1] > 0.5, np.nan, numbers) if column.may_miss else numbers
            else:
                codes = (part[:, 0] > 0).astype(np.int64) if column.word == "b" else part.argmax(1)
                found[column.name] = np.where(codes < len(column.categories), codes, -1)
        known = {column.name: column for column in self.columns}
        for rule in rules:
            left, right = known[rule.left], known[rule.right]
            more = right.unscaled(found[rule.right], rule.span(left, right))
            found[rule.right] = right.rounded(found[rule.left] + more)
        return found

    def written(self, values: Mapping[str, npt.NDArray[Any]]) -> Cells:
        """Values of the declared columns as they are written."""
        return {column.name: _written(column, values[column.name]) for column in self.columns}

    def decode_labels(self, y: torch.Tensor) -> npt.NDArray[np.str_]:
        """The class names of class numbers."""
        names: npt.NDArray[np.str_] = np.asarray(self.classes)[y.detach().cpu().numpy()]
        return names


def check_classes(classes: Sequence[str]) -> None:
    """Refuse fewer than two classes, or one that is declared twice."""
    if len(classes) < 2:
        raise UserError(
            f"Expected at least two declared classes (--classes, or in the schema), got {listed(classes) or 'none'}."
        )
    if len(set(classes)) != len(classes):
        raise UserError(f"Expected distinct classes (--classes, or in the schema), got {listed(classes)}.")


def class_codes(values: Values, classes: Sequence[str], faults: Faults) -> npt.NDArray[np.int64]:
    """Labels to class numbers in the declared order."""
    names = Names(classes)
    codes = np.zeros(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        code = names.code(value)
        if code is None:
            rest = f"in row {row + 1} is not one of the declared classes ({listed(classes)}); mend it or --classes."
            number = value_of(plain(value))
            if number is not None and not number.is_integer():
                rest += " A number with a fraction is a quantity: turn it into classes first, or leave out classes and "
                rest += "declare it as a column (regression)."
            error = CellError(f"Label '{shown(plain(value))}' {rest}", without_values=f"The label {rest}")
            faults.note(row, "its label is not a declared class", error)
        else:
            codes[row] = code
    return codes


def _numbers(values: Values, column: Column, faults: Faults) -> Floats:
    """The numbers of a column, NaN where one is missing and that is a value."""
    numbers = np.empty(0)
    if column.type == "numeric" and column.decimal == "." and not column.thousands:
        # The whole column at once; only a column with empty cells or text needs the slow look at each cell.
        with suppress(TypeError, ValueError, OverflowError):
            numbers = np.array(values, dtype=np.float64)
    if numbers.shape != (len(values),):
        numbers = _one_by_one(values, column, faults)
    for row in np.flatnonzero(~np.isfinite(numbers)).tolist():
        if np.isnan(numbers[row]) and column.may_miss:
            continue
        if not np.isnan(numbers[row]):
            where = f"Expected a finite number in column '{column.name}', row {row + 1}"
            error = CellError(f"{where}, got {numbers[row]}.", without_values=f"{where}.")
            faults.note(row, "a number is not finite", error, place=f"column '{column.name}'")
        elif column.missing is None:
            _empty(column, row, faults)
        numbers[row] = column.bounds()[0] if column.missing in (None, True) else float(column.missing)
    return numbers


def _one_by_one(values: Values, column: Column, faults: Faults) -> Floats:
    """Each cell by itself; cells of text that come again are read once."""
    found, known = np.empty(len(values)), dict[str, float | None]()
    for row, value in enumerate(values):
        text = isinstance(value, str)
        number = known[value] if text and value in known else _number(value, column)
        if text and len(known) < MOST_KNOWN:
            known[value] = number
        if number is None:
            kind = {"date": "a date", "time": "a time"}.get(column.type, "a number")
            told = "" if column.type == "numeric" else f" as {column.form}"
            where = f"Expected {kind}{told} in column '{column.name}', row {row + 1}"
            error = CellError(f"{where}, got '{shown(plain(value))}'.", without_values=f"{where}.")
            faults.note(row, f"a cell is not {kind}", error, place=f"column '{column.name}'")
            number = column.bounds()[0]
        found[row] = number
    return found


def _number(value: object, column: Column) -> float | None:
    """A cell as a number, NaN for an empty one, None for what is none."""
    if is_missing(value):
        return np.nan
    if column.type == "numeric":
        return number_of(value, column.decimal, column.thousands)
    return instant(value, column.format, clock=column.type == "time")


def _codes(values: Values, column: Column, faults: Faults) -> npt.NDArray[np.int64]:
    names = Names(column.categories)
    codes, known = np.zeros(len(values), dtype=np.int64), dict[str, int | None]()
    for row, value in enumerate(values):
        text = isinstance(value, str)
        code = known[value] if text and value in known else _code(value, names, column)
        if text and len(known) < MOST_KNOWN:
            known[value] = code
        if code is not None:
            codes[row] = code
        elif is_missing(value):
            _empty(column, row, faults)
        else:
            rest = f"column '{column.name}', row {row + 1}, is not one of its declared categories"
            rest += f" ({listed(column.categories)}); declare it, or other = CATEGORY for all such values."
            error = CellError(f"Value '{shown(plain(value))}' in {rest}", without_values=f"A value in {rest}")
            faults.note(row, "a cell is not a declared category", error, place=f"column '{column.name}'")
    return codes


def _code(value: object, names: Names, column: Column) -> int | None:
    """The code of a cell by the declared rules, None where none fits."""
    code = names.code(value)
    if code is not None:
        return code
    if is_missing(value):
        return (
            len(column.categories)
            if column.may_miss
            else None
            if column.missing is None
            else names.code(column.missing)
        )
    return None if column.other is None else names.code(column.other)


def _empty(column: Column, row: int, faults: Faults) -> None:
    words = (
        f"Empty or NaN cell in column '{column.name}', row {row + 1}; declare missing = true for the column in the "
        "schema (a value of its own), or missing = VALUE to fill it in."
    )
    faults.note(row, "a cell is empty", CellError(words, without_values=words), place=f"column '{column.name}'")


def _written(column: Column, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not column.is_number:
        names = np.asarray(column.categories)[values]
        return _without(names, values < 0) if column.may_miss else names
    gone = np.isnan(values)
    if column.type == "numeric":
        if not column.integer:
            return values
        whole = np.where(gone, 0, values).astype(np.int64)
        return _without(whole, gone) if column.may_miss else whole
    distinct, inverse = np.unique(np.where(gone, column.bounds()[0], values), return_inverse=True)
    told = np.array([column.words(float(value)) for value in distinct], dtype=object)
    return _without(told[inverse], gone)


def _without(cells: npt.NDArray[Any], gone: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The cells as objects, None where they are missing."""
    found: npt.NDArray[Any] = cells.astype(object)
    found[gone] = None
    return found


def words(schema: Schema) -> tuple[str, ...]:
    """The written form of a declared schema's columns."""
    return tuple(column.word for column in schema.encoded)


__all__ = [
    "EVERY", "MISSING", "Column", "Schema", "check_classes", "class_codes", "is_missing", "listed", "plain", "value_of",
    "words",
]  # fmt: skip
