"""A table's columns as discrete variables: numbers in equal public bins, choices as they are, the label last.

A missing number is a place of its own, after the bins. Nothing here looks at more than one record at a time, and every
value has a place: what lies outside the declared range counts in the nearest bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prismfl.nets.columns import Columns

Clique = tuple[int, ...]


@dataclass(frozen=True)
class Variable:
    """One column: its letter, its first feature, how many features it has, its number of places."""

    kind: str
    first: int
    width: int
    places: int

    @property
    def bins(self) -> int:
        """How many places are bins of a number; 0 for a choice."""
        return {"n": self.places, "p": self.places, "m": self.places - 1}.get(self.kind, 0)


@dataclass(frozen=True)
class Variables:
    """All columns in the order of their features, and after them the label, where there is one."""

    columns: tuple[Variable, ...]
    labels: int
    features: int

    @classmethod
    def of(cls, columns: Columns, *, bins: int, labels: int) -> Variables:
        """The variables of declared columns. With fewer than two `labels` there is no label."""
        flags = dict(columns.missing)
        found = [Variable("m", i, 2, bins + 1) if i in flags else Variable("n", i, 1, bins) for i in columns.numeric]
        found += [Variable("b", i, 1, 2) for i in columns.binary] + [Variable("p", i, 1, bins) for i in columns.pixels]
        found += [Variable("c", first, width, width) for first, width in columns.blocks]
        found.sort(key=lambda one: one.first)
        return cls(tuple(found), labels if labels > 1 else 0, columns.width)

    def __len__(self) -> int:
        return len(self.columns) + bool(self.labels)

    @property
    def label(self) -> int | None:
        """The number of the label's variable."""
        return len(self.columns) if self.labels else None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The places of each variable."""
        return tuple(one.places for one in self.columns) + ((self.labels,) if self.labels else ())

    def codes(self, x: torch.Tensor, y: torch.Tensor, *, finer: int = 1) -> torch.Tensor:
        """(records, variables): the place of each record; `finer` cuts every bin in so many."""
        flat = x.flatten(1)
        found = [_places(one, flat[:, one.first : one.first + one.width], finer) for one in self.columns]
        return torch.stack(found + ([y.to(torch.int64)] if self.labels else []), 1)

    def records(self, codes: torch.Tensor, generator: torch.Generator, *, finer: int = 1) -> torch.Tensor:
        """Encoded records from places, a number drawn uniformly inside its bin."""
        x = torch.zeros(len(codes), self.features)
        for k, one in enumerate(self.columns):
            place = codes[:, k]
            if one.bins:
                inside = torch.rand(len(codes), generator=generator)
                value = (place + inside) / (one.bins * finer)
                value = value if one.kind == "p" else 2.0 * value - 1.0
                gone = place >= one.bins * finer
                x[:, one.first] = torch.where(gone, 0.0, value)
                if one.kind == "m":
                    x[:, one.first + 1] = gone.to(x.dtype)
            elif one.kind == "b":
                x[:, one.first] = 2.0 * place - 1.0
            else:
                x[torch.arange(len(x)), one.first + place] = 1.0
        return x


def _places(one: Variable, features: torch.Tensor, finer: int) -> torch.Tensor:
    value = torch.nan_to_num(features[:, 0].double())
    if one.kind == "b":
        return (value > 0).to(torch.int64)
    if not one.bins:
        return torch.nan_to_num(features.double()).argmax(1)
    bins = one.bins * finer
    share = value if one.kind == "p" else (value + 1.0) / 2.0
    place = (share * bins).clamp(0.0, bins - 1.0).to(torch.int64)
    return torch.where(features[:, 1] > 0.5, bins, place) if one.kind == "m" else place


def cells(sizes: Sequence[int], clique: Clique) -> int:
    """How many cells a clique's table has."""
    total = 1
    for k in clique:
        total *= sizes[k]
    return total
