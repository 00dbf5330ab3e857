"""The declaration of a table: columns, bounds, categories, label and classes, all public and none fitted on data.

A numeric column becomes one number in [-1, 1] by its declared bounds (values outside are clipped), a binary column
becomes -1 or +1, a categorical column becomes a 0/1 block with one place per declared category.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from prismfl.data.columns import MOST_COLUMNS
from prismfl.data.faults import Faults
from prismfl.errors import CellError, UserError

if TYPE_CHECKING:
    import torch

ColumnType = Literal["numeric", "categorical", "binary"]
Values = Sequence[object] | npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class Column:
    """One feature column. `missing` is the declared value that stands in for an empty cell; None refuses them.

    `scale="log"` spaces a skewed column by log(1 + value - min): a declared transform, not a fitted one.
    """

    name: str
    type: ColumnType = "numeric"
    min: float | None = None
    max: float | None = None
    categories: tuple[str, ...] = ()
    integer: bool = False
    scale: Literal["linear", "log"] = "linear"
    missing: float | str | None = None

    def __post_init__(self) -> None:
        where = f"column '{self.name}'"
        if self.type not in ("numeric", "categorical", "binary"):
            raise UserError(f"Expected type numeric, categorical or binary for {where}, got '{self.type}'.")
        if self.scale not in ("linear", "log"):
            raise UserError(f"Expected scale linear or log for {where}, got '{self.scale}'.")
        if self.type == "numeric":
            self._check_numeric(where)
            return
        if self.type == "binary" and not self.categories:
            object.__setattr__(self, "categories", ("0", "1"))
        self._check_categories(where)

    def _check_numeric(self, where: str) -> None:
        if self.min is None or self.max is None:
            raise UserError(f"Expected declared min and max for numeric {where}; bounds are never taken from the data.")
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            raise UserError(f"Expected finite min < max for {where}, got min {self.min} and max {self.max}.")
        if isinstance(self.missing, str):
            raise UserError(f"Expected a number as missing for numeric {where}, got '{self.missing}'.")

    def _check_categories(self, where: str) -> None:
        if self.type == "binary" and len(self.categories) != 2:
            raise UserError(f"Expected two categories for binary {where}, got {len(self.categories)}.")
        if not self.categories:
            raise UserError(f"Expected declared categories for {where}; they are never taken from the data.")
        if len(set(self.categories)) != len(self.categories):
            raise UserError(f"Expected distinct categories for {where}, got {listed(self.categories)}.")
        if self.missing is not None and plain(self.missing) not in self.categories:
            raise UserError(f"Expected missing of {where} among its categories, got '{self.missing}'.")

    @property
    def width(self) -> int:
        """Features that the column takes after encoding."""
        return len(self.categories) if self.type == "categorical" else 1

    def bounds(self) -> tuple[float, float]:
        """The declared min and max of a numeric column."""
        assert self.min is not None
        assert self.max is not None
        return self.min, self.max


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table, its label column and classes, and the column that names the privacy unit."""

    columns: tuple[Column, ...]
    label: str
    classes: tuple[str, ...]
    unit: str | None = None
    train_size: int | None = None

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        if not names:
            raise UserError("Expected at least one column in the schema, got none.")
        if len(names) > MOST_COLUMNS:
            raise UserError(f"Expected at most {MOST_COLUMNS:,} columns in the schema, got {len(names):,}.")
        for name, times in Counter(names).items():
            if times > 1:
                raise UserError(f"Expected each column once in the schema, got '{name}' twice.")
            if name in (self.label, self.unit):
                raise UserError(f"Expected '{name}' as a feature or as label or unit, not as both.")
        check_classes(self.classes)
        if self.train_size is not None and self.train_size < 1:
            raise UserError(f"Expected train_size >= 1 in the schema, got {self.train_size}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the feature columns, in the declared order."""
        return tuple(c.name for c in self.columns)

    @property
    def width(self) -> int:
        """Features after encoding."""
        return sum(c.width for c in self.columns)

    def blocks(self) -> Iterator[tuple[Column, slice]]:
        """Each column with the encoded features that belong to it."""
        start = 0
        for column in self.columns:
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
        for column, block in self.blocks():
            values = table[column.name]
            if len(values) != rows:
                raise UserError(f"Expected {rows} values in column '{column.name}', got {len(values)}.")
            if column.type == "numeric":
                out[:, block.start] = _scale(_numbers(values, column, noted), column)
                continue
            codes = _codes(values, column, noted)
            if column.type == "binary":
                out[:, block.start] = 2 * codes - 1
            else:
                out[np.arange(rows), block.start + codes] = 1
        return torch.from_numpy(out)

    def encode_labels(self, values: Values, faults: Faults | None = None) -> torch.Tensor:
        """Labels as class numbers in the declared order."""
        import torch

        return torch.from_numpy(class_codes(values, self.classes, faults or Faults()))

    def decode(self, x: torch.Tensor) -> dict[str, npt.NDArray[Any]]:
        """Features back to typed columns: float64 or int64 for numbers, text for categories (the largest place wins).

        Takes any real features, such as a synthesizer's: what lies outside the bounds is clipped to them.
        """
        raw = x.detach().cpu().numpy().astype(np.float64)
        if raw.ndim != 2 or raw.shape[1] != self.width:
            raise UserError(f"Expected features of shape (n, {self.width}), got {tuple(raw.shape)}.")
        table: dict[str, npt.NDArray[Any]] = {}
        for column, block in self.blocks():
            part = raw[:, block]
            if column.type == "numeric":
                values = _unscale(part[:, 0], column)
                table[column.name] = np.rint(values).astype(np.int64) if column.integer else values
            else:
                codes = (part[:, 0] > 0).astype(np.int64) if column.type == "binary" else part.argmax(1)
                table[column.name] = np.asarray(column.categories)[codes]
        return table

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


def listed(names: Mapping[str, object] | Sequence[str], most: int = 20) -> str:
    """Names for a message, cut where the line would grow too long."""
    shown = list(names)
    return ", ".join(shown[:most]) + (f", ... ({len(shown)} in all)" if len(shown) > most else "")


def plain(value: object) -> str:
    """A cell as text, so that 1, 1.0 and '1' name the same category."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return "" if value is None else str(value).strip()


def is_missing(value: object) -> bool:
    """Whether a cell stands for a missing value."""
    return plain(value).lower() in MISSING


class _Names:
    """The number of each declared name: as text, or by the value of what is nothing but a number.

    One cell of text makes a whole column text ("1.0" where 1 stood): that must not rename the others.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._codes = {name: code for code, name in enumerate(names)}
        values = Counter(value_of(name) for name in names)
        self._by_value = {v: code for name, code in self._codes.items() if values[v := value_of(name)] == 1}
        self._by_value.pop(None, None)

    def code(self, value: object) -> int | None:
        text = plain(value)
        code = self._codes.get(text)
        return self._by_value.get(value_of(text)) if code is None and self._by_value else code


def value_of(text: str) -> float | None:
    """The value of text that is nothing but a finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def class_codes(values: Values, classes: Sequence[str], faults: Faults) -> npt.NDArray[np.int64]:
    """Labels to class numbers in the declared order."""
    names = _Names(classes)
    codes = np.zeros(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        code = names.code(value)
        if code is None:
            rest = f"in row {row + 1} is not one of the declared classes ({listed(classes)}); mend it or --classes."
            number = value_of(plain(value))
            if number is not None and not number.is_integer():
                rest += " A number with a fraction is a quantity: turn it into classes first."
            error = CellError(f"Label '{plain(value)}' {rest}", without_values=f"The label {rest}")
            faults.note(row, "its label is not a declared class", error)
        else:
            codes[row] = code
    return codes


def _numbers(values: Values, column: Column, faults: Faults) -> Floats:
    try:
        # The whole column at once; only a column with empty cells or text needs the slow look at each cell.
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty(0)
    if numbers.shape != (len(values),):
        numbers = np.array([_number(v, column, row, faults) for row, v in enumerate(values)], dtype=np.float64)
    for row in np.flatnonzero(~np.isfinite(numbers)).tolist():
        if not np.isnan(numbers[row]):
            where = f"Expected a finite number in column '{column.name}', row {row + 1}"
            error = CellError(f"{where}, got {numbers[row]}.", without_values=f"{where}.")
            faults.note(row, "a number is not finite", error, place=f"column '{column.name}'")
        elif column.missing is None:
            _empty(column, row, faults)
        numbers[row] = column.bounds()[0] if column.missing is None else float(column.missing)
    return numbers


def _number(value: object, column: Column, row: int, faults: Faults) -> float:
    text = plain(value)
    if text.lower() in MISSING:
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number is told below
    except (TypeError, ValueError, OverflowError):
        where = f"Expected a number in column '{column.name}', row {row + 1}"
        error = CellError(f"{where}, got '{text}'.", without_values=f"{where}.")
        faults.note(row, "a cell is not a number", error, place=f"column '{column.name}'")
        return column.bounds()[0]


def _codes(values: Values, column: Column, faults: Faults) -> npt.NDArray[np.int64]:
    names = _Names(column.categories)
    codes = np.zeros(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        code = names.code(value)
        if code is None and is_missing(value):
            if column.missing is None:
                _empty(column, row, faults)
                continue
            code = names.code(column.missing)
        if code is None:
            rest = f"column '{column.name}', row {row + 1}, is not one of its declared categories"
            rest += f" ({listed(column.categories)})."
            error = CellError(f"Value '{plain(value)}' in {rest}", without_values=f"A value in {rest}")
            faults.note(row, "a cell is not a declared category", error, place=f"column '{column.name}'")
        else:
            codes[row] = code
    return codes


def _empty(column: Column, row: int, faults: Faults) -> None:
    words = (
        f"Empty or NaN cell in column '{column.name}', row {row + 1}; fill it, drop the row, or declare "
        f"missing = VALUE for the column in the schema."
    )
    faults.note(row, "a cell is empty", CellError(words, without_values=words), place=f"column '{column.name}'")


def _scale(values: Floats, column: Column) -> Floats:
    low, high = column.bounds()
    offset = np.clip(values, low, high) - low
    if column.scale == "log":
        return 2 * np.log1p(offset) / math.log1p(high - low) - 1
    return 2 * offset / (high - low) - 1


def _unscale(features: Floats, column: Column) -> Floats:
    low, high = column.bounds()
    share = (np.clip(features, -1, 1) + 1) / 2
    offset = np.expm1(share * math.log1p(high - low)) if column.scale == "log" else share * (high - low)
    return np.clip(low + offset, low, high)


def words(schema: Schema) -> tuple[str, ...]:
    """The written form of a declared schema's columns."""
    letters = {"numeric": "n", "binary": "b"}
    return tuple(letters.get(column.type) or f"c{column.width}" for column in schema.columns)
