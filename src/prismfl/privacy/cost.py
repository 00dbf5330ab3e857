"""What a release costs: how often which noise mechanism was applied to whose data. Numbers only, no epsilon.

A cost is a description, not a bound: it lists noise mechanisms with their counts, the protected unit and the
neighbouring relation. `account` turns it into an epsilon; the ledger adds costs up. Costs of different units or
relations never add, and "no guarantee" is a value (`private = False`) that absorbs everything it is added to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from prismfl.errors import UserError

Kind = Literal["gaussian", "laplace"]
Relation = Literal["add-remove", "replace-one"]

KINDS: tuple[Kind, ...] = get_args(Kind)
RELATIONS: tuple[Relation, ...] = get_args(Relation)

_MOST_TIMES = 10**18
_MOST_PAIRS = 16


@dataclass(frozen=True, order=True, slots=True)
class Mechanism:
    """One noisy query. `noise` is the standard deviation over the L2 bound (gaussian) or the scale over the L1 bound
    (laplace); the bound is the norm of one unit's contribution. `rate` is the Poisson sampling rate."""

    kind: Kind
    noise: float
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"Expected a mechanism out of {', '.join(KINDS)}, got {self.kind!r}.")
        object.__setattr__(self, "noise", _number("noise", self.noise))
        object.__setattr__(self, "rate", _number("rate", self.rate))
        if self.noise < 0:
            raise UserError(f"Expected noise >= 0, got {self.noise}.")
        if not 0 < self.rate <= 1:
            raise UserError(f"Expected 0 < rate <= 1, got {self.rate}.")


Branch = tuple[tuple[Mechanism, int], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The composition of mechanisms on one data set.

    `branches` has one entry in the usual case. Several entries mean parallel composition: entry k was spent on the
    k-th declared label class only, so a unit pays for one entry and the bound is the worst of them.
    """

    branches: tuple[Branch, ...]
    unit: str = "record"
    relation: Relation = "add-remove"
    private: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise UserError(f"Expected a unit such as 'record', 'client' or a column name, got {self.unit!r}.")
        if self.relation not in RELATIONS:
            raise UserError(f"Expected a relation out of {', '.join(RELATIONS)}, got {self.relation!r}.")
        branches = tuple(_canonical(branch) for branch in self.branches)
        if any(mechanism.noise == 0 for branch in branches for mechanism, _ in branch):
            object.__setattr__(self, "private", False)
        if not self.private:
            branches = ()
        elif not branches:
            raise UserError("Expected at least one branch in a private cost, got none.")
        elif len(branches) > 1 and self.relation != "add-remove":
            raise UserError(f"Parallel composition over classes needs relation add-remove, got {self.relation}.")
        object.__setattr__(self, "branches", branches)

    @classmethod
    def zero(cls, unit: str = "record", relation: Relation = "add-remove") -> Cost:
        """The cost of nothing."""
        return cls(((),), unit, relation)

    @classmethod
    def gaussian(
        cls, noise: float, rate: float = 1.0, *, times: int = 1, unit: str = "record", relation: Relation = "add-remove"
    ) -> Cost:
        """`times` Gaussian queries; noise 0 gives a non-private cost."""
        return cls((((Mechanism("gaussian", noise, rate), times),),), unit, relation)

    @classmethod
    def laplace(
        cls, noise: float, rate: float = 1.0, *, times: int = 1, unit: str = "record", relation: Relation = "add-remove"
    ) -> Cost:
        """`times` Laplace queries; noise 0 gives a non-private cost."""
        return cls((((Mechanism("laplace", noise, rate), times),),), unit, relation)

    @classmethod
    def non_private(cls, unit: str = "record", relation: Relation = "add-remove") -> Cost:
        """The cost of an answer without a guarantee."""
        return cls((), unit, relation, private=False)

    @classmethod
    def parallel(cls, costs: Iterable[Cost]) -> Cost:
        """Costs spent on disjoint label classes, in the order of the declared classes."""
        parts = tuple(costs)
        if not parts:
            raise UserError("Expected at least one cost to compose in parallel, got none.")
        first = parts[0]
        for part in parts:
            _same_terms(first, part)
            if part.relation != "add-remove":
                raise UserError(f"Parallel composition over classes needs relation add-remove, got {part.relation}.")
            if part.private and len(part.branches) != 1:
                raise UserError(f"Expected costs of one branch each, got one of {len(part.branches)} branches.")
        if not all(part.private for part in parts):
            return cls.non_private(first.unit, first.relation)
        return cls(tuple(part.branches[0] for part in parts), first.unit, first.relation)

    @property
    def is_zero(self) -> bool:
        """Whether nothing was spent."""
        return self.private and not any(self.branches)

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        _same_terms(self, other)
        if not (self.private and other.private):
            return Cost.non_private(self.unit, self.relation)
        mine, theirs = self.branches, other.branches
        if len(mine) != len(theirs) and 1 not in (len(mine), len(theirs)):
            raise UserError(f"Costs of {len(mine)} and of {len(theirs)} parallel branches do not add.")
        width = max(len(mine), len(theirs))
        mine, theirs = (side * width if len(side) == 1 else side for side in (mine, theirs))
        return Cost(tuple(a + b for a, b in zip(mine, theirs, strict=True)), self.unit, self.relation)

    def __mul__(self, times: int) -> Cost:
        if isinstance(times, bool) or not isinstance(times, int):
            return NotImplemented
        if times < 0:
            raise UserError(f"Expected times >= 0, got {times}.")
        if times == 0:
            return Cost.zero(self.unit, self.relation)
        if not self.private:
            return self
        branches = tuple(tuple((mechanism, n * times) for mechanism, n in branch) for branch in self.branches)
        return Cost(branches, self.unit, self.relation)

    __rmul__ = __mul__

    def beside(self, other: Cost) -> Cost:
        """The sum with a cost of another run. `+` adds branch k to branch k, which is right where a record lies in the
        same branch of both, as in the rounds of one run. Two runs may have different classes: here a record may lie in
        any pair of branches, so there is a branch for each pair that no other covers."""
        _same_terms(self, other)
        if not (self.private and other.private):
            return Cost.non_private(self.unit, self.relation)
        mine, theirs = (_outermost(cost.branches) for cost in (self, other))
        if len(mine) * len(theirs) > _MOST_PAIRS:
            mine, theirs = (_around(mine),), (_around(theirs),)
        pairs = tuple(dict.fromkeys(_canonical(a + b) for a in mine for b in theirs))
        return Cost(_outermost(pairs), self.unit, self.relation)

    def covers(self, other: Cost) -> bool:
        """Whether `other` is a part of this cost, mechanism by mechanism and branch by branch."""
        if (self.unit, self.relation) != (other.unit, other.relation):
            return False
        if not (self.private and other.private):
            return not self.private
        width = max(len(self.branches), len(other.branches))
        mine, theirs = (c.branches * width if len(c.branches) == 1 else c.branches for c in (self, other))
        if len(mine) != len(theirs):
            return False
        return all(Counter(dict(small)) <= Counter(dict(big)) for big, small in zip(mine, theirs, strict=True))

    def to_json(self) -> dict[str, Any]:
        """The cost as plain values; `from_json` reads them."""
        branches = [
            [{"kind": m.kind, "noise": m.noise, "rate": m.rate, "times": n} for m, n in branch]
            for branch in self.branches
        ]
        return {"unit": self.unit, "relation": self.relation, "private": self.private, "branches": branches}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cost:
        """The inverse of `to_json`; anything else is refused."""
        try:
            private = data["private"]
            if not isinstance(private, bool):
                raise UserError(f"Expected private to be true or false, got {private!r}.")
            branches = tuple(
                tuple((Mechanism(item["kind"], item["noise"], item["rate"]), item["times"]) for item in branch)
                for branch in data["branches"]
            )
            return cls(branches, data["unit"], data["relation"], private)
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(f"Not a cost in JSON form: {type(error).__name__} {error}.") from error

    def describe(self) -> str:
        """One line for people."""
        terms = f"unit {self.unit}, {self.relation}"
        if not self.private:
            return f"no DP guarantee; {terms}"
        if self.is_zero:
            return f"nothing spent; {terms}"
        distinct = list(dict.fromkeys(self.branches))
        text = " or ".join(_describe_branch(branch) for branch in distinct[:3])
        if len(distinct) > 3:
            text += f" or {len(distinct) - 3} more"
        if len(self.branches) > 1:
            text = f"in parallel over {len(self.branches)} classes: {text}"
        return f"{text}; {terms}"


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"Expected {name} to be a number, got {value!r}.")
    if not math.isfinite(value):
        raise UserError(f"Expected a finite {name}, got {value}.")
    return float(value)


def _canonical(branch: Sequence[tuple[Mechanism, int]]) -> Branch:
    counts: Counter[Mechanism] = Counter()
    for mechanism, times in branch:
        if isinstance(times, bool) or not isinstance(times, int):
            raise UserError(f"Expected times to be a whole number, got {times!r}.")
        if times < 0:
            raise UserError(f"Expected times >= 0, got {times}.")
        counts[mechanism] += times
        if counts[mechanism] > _MOST_TIMES:
            raise UserError(f"Expected a mechanism at most {_MOST_TIMES:.0e} times, got more.")
    return tuple(sorted((mechanism, n) for mechanism, n in counts.items() if n))


def _outermost(branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """The branches that no other one covers."""
    kept: list[Branch] = []
    for branch in branches:
        if not any(_covers(other, branch) for other in kept):
            kept = [other for other in kept if not _covers(branch, other)] + [branch]
    return tuple(kept)


def _around(branches: tuple[Branch, ...]) -> Branch:
    """One branch that covers all of them."""
    most: Counter[Mechanism] = Counter()
    for branch in branches:
        most |= Counter(dict(branch))
    return tuple(sorted(most.items()))


def _covers(big: Branch, small: Branch) -> bool:
    """Whether each use in `small` can be set against one in `big` of the same kind with no more noise and no lower
    rate, which tells at least as much: more noise can be added afterwards, and a lower rate is a mixture with nothing.
    May miss a way to pair them."""
    left = dict(big)
    for mechanism, times in small:
        for other in [m for m in left if m.kind == mechanism.kind]:
            if other.noise <= mechanism.noise and other.rate >= mechanism.rate:
                taken = min(times, left[other])
                left[other] -= taken
                times -= taken
        if times:
            return False
    return True


def _same_terms(a: Cost, b: Cost) -> None:
    if a.unit != b.unit:
        raise UserError(f"Costs per {a.unit} and per {b.unit} do not add: the units differ.")
    if a.relation != b.relation:
        raise UserError(f"Costs under {a.relation} and under {b.relation} do not add: the relations differ.")


def _describe_branch(branch: Branch) -> str:
    if not branch:
        return "nothing"
    return " + ".join(_describe_item(mechanism, n) for mechanism, n in branch)


def _describe_item(mechanism: Mechanism, times: int) -> str:
    rate = "" if mechanism.rate == 1 else f", rate {mechanism.rate:.6g}"
    return f"{times} x {mechanism.kind.capitalize()}(noise {mechanism.noise:.6g}{rate})"
