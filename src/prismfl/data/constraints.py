"""Relations that must hold between two columns of a synthetic table: `start <= end`, or pairs that are allowed.

They are declared, public, and enforced after the records were drawn: post-processing, which costs nothing. A rule is
read by a pattern and never run as code. Where a value is missing, a rule says nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from prismfl.data.cells import listed, shown
from prismfl.data.column import Column
from prismfl.errors import UserError

Cells = dict[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]
Repair = Literal["auto", "match", "resample", "swap", "clip"]
REPAIRS = get_args(Repair)
OFTEN = 0.1  # of the rows: where a rule fails more often, the generator has not learnt it
MOST_PAIRS = 1_000_000
_RULE = re.compile(r"""\s*(?:"([^"]+)"|([^<>="]+?))\s*(<=|>=|<|>)\s*(?:"([^"]+)"|([^<>="]+?))\s*""")


@dataclass(frozen=True)
class Constraint:
    """`left` is at most `right` (less, if `strict`), or the two are one of the allowed `pairs` of categories.

    `repair` says what becomes of rows in which it does not hold: both values are taken from a row in which it does
    ("resample"), or change places ("swap"), or the one is cut at the other ("clip"), or the right values of all rows
    are dealt anew by the rank of the left, which keeps the distribution of both ("match"). "auto" matches where the
    rule fails often, else it resamples. Of pairs the left stays and the right is drawn among its own.

    With `within` the right is at most so many steps (days of a date, else units) more than the left: then it is this
    difference that is released and drawn, and nothing is left to repair.
    """

    left: str
    right: str
    strict: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    repair: Repair = "auto"
    within: float | None = None

    @classmethod
    def parse(cls, rule: str, *, repair: str = "auto", within: float | None = None, where: str) -> Constraint:
        """From words such as "start <= end"; a name with signs in it stands between quotation marks."""
        found = _RULE.fullmatch(rule)
        if found is None:
            raise UserError(
                f"Expected a rule such as start <= end, two columns with <=, <, >= or >, in {where}, got "
                f"'{shown(rule)}'."
            )
        left, sign, right = found[1] or found[2], found[3], found[4] or found[5]
        if repair not in REPAIRS:
            raise UserError(f"Expected repair {', '.join(REPAIRS)} in {where}, got '{shown(repair)}'.")
        names = (right, left) if sign.startswith(">") else (left, right)
        return cls(*names, strict="=" not in sign, repair=repair, within=within)  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        """The rule in words."""
        return f"({self.left}, {self.right}) allowed" if self.pairs else f"{self.left} {self.sign} {self.right}"

    @property
    def sign(self) -> str:
        """How the left is compared with the right."""
        return "<" if self.strict else "<="

    def check(self, columns: Sequence[Column]) -> None:
        """Refuse a rule about columns that are not declared, or of which nothing could hold."""
        known = {column.name: column for column in columns}
        for name in (self.left, self.right):
            if name not in known:
                raise UserError(f"Expected declared columns in the constraint '{self.words}', got '{name}'.")
        if self.left == self.right:
            raise UserError(f"Expected two columns in the constraint '{self.words}', got one.")
        left, right = known[self.left], known[self.right]
        if self.pairs:
            self._check_pairs(left, right)
        elif not (left.is_number and left.type == right.type):
            raise UserError(
                f"Expected two numbers, two dates or two times in the constraint '{self.words}', got {left.type} and "
                f"{right.type}."
            )
        elif left.bounds()[0] + self.gap(left, right) > right.bounds()[1]:
            raise UserError(f"The declared bounds leave no values for the constraint '{self.words}'.")
        if self.within is not None:
            self._check_within(left, right)

    def _check_within(self, left: Column, right: Column) -> None:
        low, high = self.span(left, right)
        if not (math.isfinite(high) and low < high):
            raise UserError(f"Expected within > {low / _step(right):g} in the constraint '{self.words}'.")
        if left.may_miss and not right.may_miss:
            raise UserError(
                f"Expected missing = true for '{right.name}', which the constraint '{self.words}' measures from "
                f"'{left.name}', which may be missing; or leave out within."
            )

    def span(self, left: Column, right: Column) -> tuple[float, float]:
        """The least and the most that the right is more than the left, where that is declared."""
        assert self.within is not None
        return self.gap(left, right), self.within * _step(right)

    def _check_pairs(self, left: Column, right: Column) -> None:
        if left.is_number or right.is_number:
            raise UserError(f"Expected two columns with categories in the constraint '{self.words}'.")
        for place, column in ((0, left), (1, right)):
            names = set(column.categories)
            odd = next((pair[place] for pair in self.pairs if pair[place] not in names), None)
            if odd is not None:
                raise UserError(
                    f"Value '{shown(odd)}' of the constraint '{self.words}' is no declared category of column "
                    f"'{column.name}' ({listed(column.categories)})."
                )

    def gap(self, left: Column, right: Column) -> float:
        """What the right is at least more than the left."""
        return max(left.resolution, right.resolution) if self.strict else 0.0


def _step(column: Column) -> float:
    """What a difference of 1 is."""
    return 1.0 if column.type == "numeric" else column.resolution


def measured(rules: Sequence[Constraint]) -> list[Constraint]:
    """The rules whose right is told by its difference from the left, each after the one that its left is told by."""
    left = {rule.right: rule for rule in rules if rule.within is not None}
    if len(left) < sum(rule.within is not None for rule in rules):
        raise UserError(
            "Expected within in one constraint of a column that stands on the right of several (key: constraints); "
            "leave it out of the others."
        )
    found: list[Constraint] = []
    while left:
        free = [rule for rule in left.values() if rule.left not in left]
        if not free:
            raise UserError(
                f"Expected constraints with within that end (key: constraints), got a circle of {listed(list(left))}; "
                "leave within out of one."
            )
        found += free
        left = {name: rule for name, rule in left.items() if rule not in free}
    return found


@dataclass(frozen=True)
class RuleKeeper:
    """Rows of values made to keep the rules. Columns that are `fixed` keep their values."""

    columns: dict[str, Column]
    constraints: tuple[Constraint, ...]
    draws: np.random.Generator
    tables: dict[Constraint, Mask] = field(default_factory=dict)

    def enforce(self, values: Cells, fixed: Collection[str] = ()) -> Cells:
        """The same rows, repaired until all rules hold; a row that cannot be becomes one that could."""
        made = {name: cells.copy() for name, cells in values.items()}
        for _ in range(1 + len(self.constraints)):
            broken = [rule for rule in self.constraints if not self.holds(rule, made).all()]
            for rule in broken:
                self._repair(rule, made, fixed)
        return made if fixed else self._replaced(made)

    def holds(self, rule: Constraint, values: Cells) -> Mask:
        """Whether each row keeps a rule."""
        left, right = values[rule.left], values[rule.right]
        if rule.pairs:
            return self._allowed(rule)[left, right] | (left < 0) | (right < 0)
        gap = rule.gap(self.columns[rule.left], self.columns[rule.right])
        return np.isnan(left) | np.isnan(right) | (right - left >= gap - 1e-9)

    def all_hold(self, values: Cells) -> Mask:
        """Whether each row keeps all rules."""
        found = np.ones(len(next(iter(values.values()))), dtype=bool)
        for rule in self.constraints:
            found &= self.holds(rule, values)
        return found

    def _allowed(self, rule: Constraint) -> Mask:
        """Which codes may stand together; nothing is said of -1, the last place."""
        if rule not in self.tables:
            self.tables[rule] = self._table(rule)
        return self.tables[rule]

    def _table(self, rule: Constraint) -> Mask:
        left, right = (self.columns[name].categories for name in (rule.left, rule.right))
        table = np.zeros((len(left) + 1, len(right) + 1), dtype=bool)
        numbers = {name: i for i, name in enumerate(left)}, {name: i for i, name in enumerate(right)}
        codes = [(numbers[0][a], numbers[1][b]) for a, b in rule.pairs]
        table[tuple(np.array(codes).T)] = True
        return table

    def _repair(self, rule: Constraint, values: Cells, fixed: Collection[str]) -> None:
        bad = np.flatnonzero(~self.holds(rule, values))
        if not len(bad):
            return
        if rule.pairs:
            self._redraw(rule, values, bad, fixed)
            return
        left, right = values[rule.left], values[rule.right]
        good = np.flatnonzero(self.holds(rule, values) & ~np.isnan(left) & ~np.isnan(right))
        free = not {rule.left, rule.right} & set(fixed)
        repair = rule.repair
        if repair == "auto":
            repair = "match" if len(bad) > OFTEN * len(left) else "resample"
        if repair == "match" and not free:
            repair = "resample"  # rows of a unit share the one: by rank they would share the other too
        if repair == "match":
            self._match(rule, values)
            bad = np.flatnonzero(~self.holds(rule, values))
        if repair == "resample" and free and len(good):
            donors = self.draws.choice(good, len(bad))
            left[bad], right[bad] = left[donors], right[donors]
            return
        if repair == "resample" and not free:
            self._drawn_beside(rule, values, bad, fixed)
            bad = np.flatnonzero(~self.holds(rule, values))
        if repair == "swap" and free:
            left[bad], right[bad] = right[bad].copy(), left[bad].copy()
            for name in (rule.left, rule.right):
                values[name][bad] = self.columns[name].rounded(values[name][bad])
            bad = np.flatnonzero(~self.holds(rule, values))
        self._cut(rule, values, bad, fixed)

    def _match(self, rule: Constraint, values: Cells) -> None:
        """The values of the right, dealt to all rows by the rank of the left."""
        rows = np.flatnonzero(~np.isnan(values[rule.left]) & ~np.isnan(values[rule.right]))
        by_rank = rows[np.argsort(values[rule.left][rows], kind="stable")]
        values[rule.right][by_rank] = np.sort(values[rule.right][rows])

    def _drawn_beside(self, rule: Constraint, values: Cells, bad: npt.NDArray[Any], fixed: Collection[str]) -> None:
        """The one that is free is drawn anew among the values that fit the one that is fixed."""
        if rule.left in fixed and rule.right in fixed:
            return
        free, stays = (rule.left, rule.right) if rule.right in fixed else (rule.right, rule.left)
        gap = rule.gap(self.columns[rule.left], self.columns[rule.right])
        known = np.sort(values[free][~np.isnan(values[free])])
        limit = values[stays][bad]
        if free == rule.right:
            first = np.searchsorted(known, limit + gap - 1e-9)
            count = len(known) - first
        else:
            first, count = np.zeros(len(bad), dtype=np.int64), np.searchsorted(known, limit - gap + 1e-9)
        fits = count > 0
        at = first[fits] + (self.draws.random(int(fits.sum())) * count[fits]).astype(np.int64)
        values[free][bad[fits]] = known[at]

    def _cut(self, rule: Constraint, values: Cells, bad: npt.NDArray[Any], fixed: Collection[str]) -> None:
        """The right is raised to the left as far as its bounds go, then the left is lowered."""
        low, high = self.columns[rule.left], self.columns[rule.right]
        gap = rule.gap(low, high)
        if rule.right not in fixed:
            raised = np.maximum(values[rule.right][bad], values[rule.left][bad] + gap)
            values[rule.right][bad] = high.rounded(raised)
        still = bad[values[rule.right][bad] - values[rule.left][bad] < gap - 1e-9]
        if rule.left not in fixed:
            values[rule.left][still] = low.rounded(values[rule.right][still] - gap)

    def _redraw(self, rule: Constraint, values: Cells, bad: npt.NDArray[Any], fixed: Collection[str]) -> None:
        """One of the pair is drawn anew among those allowed with the other, as often as they are in the table."""
        table = self._allowed(rule)[:-1, :-1]
        for stays, free, allowed in ((rule.left, rule.right, table), (rule.right, rule.left, table.T)):
            if free in fixed:
                continue
            often = 1.0 + np.bincount(values[free][values[free] >= 0], minlength=allowed.shape[1])
            for code in np.unique(values[stays][bad]):
                weights = often * allowed[code]
                rows = bad[values[stays][bad] == code]
                if weights.any():
                    values[free][rows] = self.draws.choice(len(weights), len(rows), p=weights / weights.sum())
            bad = bad[~self.holds(rule, values)[bad]]
        if len(bad) and not {rule.left, rule.right} & set(fixed):
            pairs = np.argwhere(table)[self.draws.integers(int(table.sum()), size=len(bad))]
            values[rule.left][bad], values[rule.right][bad] = pairs.T

    def _replaced(self, values: Cells) -> Cells:
        """Rules that pull against each other can leave rows over: each becomes a row in which all of them hold."""
        good = self.all_hold(values)
        if good.all() or not good.any():
            return values
        rows = np.arange(len(good))
        rows[~good] = self.draws.choice(rows[good], int((~good).sum()))
        return {name: cells[rows] for name, cells in values.items()}
