"""One declared column of a table: its kind, its domain, how a missing cell is taken, and how values are written.

All of it is public and none fitted on data. A number (and a date) becomes one number in [-1, 1] by its bounds, a binary
-1 or +1, a choice a 0/1 block with a place for each category. Where `missing = true`, a number has a second feature
that is 1 where it is missing, and a choice (a binary too) has one more place in its block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from prismfl.data.cells import instant, listed, moment_words, plain, step_seconds
from prismfl.errors import UserError

ColumnType = Literal["numeric", "categorical", "binary", "ordinal", "date", "time"]
TYPES = get_args(ColumnType)
NUMBERS = ("numeric", "date", "time")
MOST_CATEGORIES = 10_000
STEPS = 1000  # that a number has at least between its bounds, where its decimals are not declared
MOST_DECIMALS = 12
DAY = 86400.0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One feature column. `missing` says what an empty cell is: True a value of its own, else the declared value that
    stands in for it; None refuses them. `other` is the category that undeclared values are mapped to.

    `scale="log"` spaces a skewed column by log(1 + value - min): a declared transform, not a fitted one. `decimal` and
    `thousands` are the signs in the file's numbers. The bounds of a date are seconds from 1970, of a time since
    midnight; `format` is how it is written (strptime's signs; ISO without it), `step` what it is rounded to. A column
    that is the same in all rows of a unit says so with `per_unit`.
    """

    name: str
    type: ColumnType = "numeric"
    min: float | None = None
    max: float | None = None
    categories: tuple[str, ...] = ()
    integer: bool = False
    scale: Literal["linear", "log"] = "linear"
    missing: float | str | bool | None = None
    decimals: int | None = None
    decimal: str = "."
    thousands: str = ""
    other: str | None = None
    format: str | None = None
    step: str | None = None
    per_unit: bool = False

    def __post_init__(self) -> None:
        where = f"column '{self.name}'"
        if self.type not in TYPES:
            raise UserError(
                f"Expected type numeric, categorical, binary, ordinal, date, time, id or text for {where}, got "
                f"'{self.type}'."
            )
        if self.scale not in ("linear", "log"):
            raise UserError(f"Expected scale linear or log for {where}, got '{self.scale}'.")
        if self.missing is False:
            object.__setattr__(self, "missing", None)
        self._check_keys(where)
        if self.is_number:
            self._check_bounds(where)
            self._check_writing(where)
            return
        if self.type == "binary" and not self.categories:
            object.__setattr__(self, "categories", ("0", "1"))
        self._check_categories(where)

    def _check_keys(self, where: str) -> None:
        """A key of another type of column would be silently without effect."""
        given = {"other": self.other, "format": self.format, "step": self.step, "decimals": self.decimals}
        given |= {"decimal": self.decimal != "." or None, "thousands": self.thousands or None}
        fits = {"other": ("categorical", "binary", "ordinal"), "format": ("date", "time"), "step": ("date", "time")}
        for key, value in given.items():
            kinds = fits.get(key, ("numeric",))
            if value is not None and self.type not in kinds:
                raise UserError(
                    f"Expected {key} only for a column of type {' or '.join(kinds)}; {where} is {self.type}."
                )

    def _check_bounds(self, where: str) -> None:
        if self.type == "time" and self.min is None and self.max is None:
            object.__setattr__(self, "min", 0.0)
            object.__setattr__(self, "max", DAY - self.resolution)
        if self.min is None or self.max is None:
            raise UserError(
                f"Expected declared min and max for {self.type} {where}; bounds are never taken from the data."
            )
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            low, high = self.words(self.min), self.words(self.max)
            raise UserError(f"Expected finite min < max for {where}, got min {low} and max {high}.")
        if isinstance(self.missing, str):
            kind = "a number" if self.type == "numeric" else "true"
            raise UserError(f"Expected {kind} as missing for {self.type} {where}, got '{self.missing}'.")

    def _check_writing(self, where: str) -> None:
        if self.decimals is not None and not 0 <= self.decimals <= MOST_DECIMALS:
            raise UserError(f"Expected 0 to {MOST_DECIMALS} decimals for {where}, got {self.decimals}.")
        if self.decimal not in (".", ",") or self.thousands not in ("", ",", ".", " ", "'"):
            raise UserError(
                f"Expected '.' or ',' as decimal and one of , . ' or a blank as thousands for {where}, got "
                f"'{self.decimal}' and '{self.thousands}'."
            )
        if self.decimal == self.thousands:
            raise UserError(f"Expected different signs as decimal and thousands for {where}, got '{self.decimal}'.")
        if self.type == "numeric":
            return
        if self.step is not None and step_seconds(self.step) is None:
            raise UserError(f"Expected a step such as day, hour or 15 minutes for {where}, got '{self.step}'.")
        low = self.bounds()[0]
        told = self.words(low)
        if instant(told, self.format, clock=self.type == "time") != low:
            raise UserError(
                f"Expected a format for {where} in which its bounds can be read back, got '{self.form}' ({told})."
            )

    def _check_categories(self, where: str) -> None:
        if self.type == "binary" and len(self.categories) != 2:
            raise UserError(f"Expected two categories for binary {where}, got {len(self.categories)}.")
        if not self.categories:
            raise UserError(f"Expected declared categories for {where}; they are never taken from the data.")
        if len(self.categories) > MOST_CATEGORIES:
            raise UserError(
                f"Expected at most {MOST_CATEGORIES:,} categories for {where}, got {len(self.categories):,}; coarsen "
                "them, or declare the column as id or text."
            )
        if len(set(self.categories)) != len(self.categories):
            raise UserError(f"Expected distinct categories for {where}, got {listed(self.categories)}.")
        if self.missing not in (None, True) and plain(self.missing) not in self.categories:
            raise UserError(f"Expected missing of {where} among its categories, got '{self.missing}'.")
        if self.other is not None and self.other not in self.categories:
            raise UserError(f"Expected other of {where} among its categories, got '{self.other}'.")

    @property
    def is_number(self) -> bool:
        """Whether values lie between bounds (numbers, dates, times); else they are categories."""
        return self.type in NUMBERS

    @property
    def may_miss(self) -> bool:
        """Whether a missing cell is a value of its own."""
        return self.missing is True

    @property
    def word(self) -> str:
        """The column in `nets.columns`' words: n, m, b or c5."""
        if self.is_number:
            return "m" if self.may_miss else "n"
        if self.type == "binary" and not self.may_miss:
            return "b"
        return f"c{len(self.categories) + self.may_miss}"

    @property
    def width(self) -> int:
        """Features that the column takes after encoding."""
        word = self.word
        return {"n": 1, "b": 1, "m": 2}.get(word) or int(word[1:])

    def bounds(self) -> tuple[float, float]:
        """The declared min and max of a number."""
        assert self.min is not None
        assert self.max is not None
        return self.min, self.max

    @property
    def resolution(self) -> float:
        """The step that written values are rounded to."""
        if self.type != "numeric":
            return step_seconds(self.step or ("day" if self.type == "date" else "minute")) or 1.0
        return 10.0**-self.digits

    @property
    def digits(self) -> int:
        """Decimals of a number: 0 of whole ones, as declared, or as many as the bounds have and a fine scale needs."""
        if self.integer:
            return 0
        if self.decimals is not None:
            return self.decimals
        low, high = self.bounds()
        own = max(
            len(repr(bound).partition(".")[2].removesuffix("0")) if "e" not in repr(bound) else 0
            for bound in (low, high)
        )
        fine = math.ceil(math.log10(STEPS / (high - low))) + (2 if self.scale == "log" else 0)
        return min(max(own, fine, 0), MOST_DECIMALS)

    @property
    def form(self) -> str:
        """How a date or a time is written."""
        if self.format is not None:
            return self.format
        if self.type == "date" and self.resolution % DAY == 0 and self.bounds()[0] % DAY == 0:
            return "%Y-%m-%d"
        clock = "%H:%M" if self.resolution % 60 == 0 and self.bounds()[0] % 60 == 0 else "%H:%M:%S"
        return clock if self.type == "time" else f"%Y-%m-%dT{clock}"

    def words(self, value: float) -> str:
        """A value of a number, a date or a time in words."""
        return str(value) if self.type == "numeric" or not math.isfinite(value) else moment_words(value, self.form)

    def rounded(self, values: Floats) -> Floats:
        """Values within the bounds and on the steps; NaN stays."""
        low, high = self.bounds()
        if self.type == "numeric":
            return np.clip(np.round(values, self.digits), low, high) if not self.integer else self._whole(values)
        steps = np.floor((high - low) / self.resolution)
        return low + np.clip(np.round((values - low) / self.resolution), 0, steps) * self.resolution

    def _whole(self, values: Floats) -> Floats:
        low, high = self.bounds()
        return np.clip(
            np.rint(values),
            *((math.ceil(low), math.floor(high)) if math.ceil(low) <= math.floor(high) else (low, high)),
        )

    def scaled(self, values: Floats, bounds: tuple[float, float] | None = None) -> Floats:
        """Values to features in [-1, 1]; what lies outside the bounds (the declared ones) is clipped."""
        low, high = bounds or self.bounds()
        offset = np.clip(values, low, high) - low
        if self.scale == "log":
            return 2 * np.log1p(offset) / math.log1p(high - low) - 1
        return 2 * offset / (high - low) - 1

    def unscaled(self, features: Floats, bounds: tuple[float, float] | None = None) -> Floats:
        """Features back to values between the bounds (the declared ones)."""
        low, high = bounds or self.bounds()
        share = (np.clip(features, -1, 1) + 1) / 2
        offset = np.expm1(share * math.log1p(high - low)) if self.scale == "log" else share * (high - low)
        return np.clip(low + offset, low, high)
