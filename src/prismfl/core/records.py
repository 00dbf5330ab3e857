"""Raw records of a site, and the names that their own random numbers follow from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.rng import Identities, identities


def as_floats(x: torch.Tensor) -> torch.Tensor:
    """Records as numbers to compute with: pictures that are kept as bytes in [0, 1], all others as they are.

    A picture is kept in a quarter of the room of its floats. Whoever computes makes floats of the few it is at.
    """
    return x.to(torch.float32).div_(255.0) if x.dtype == torch.uint8 else x


@dataclass(frozen=True)
class Records:
    """Raw records of a site; `unit` numbers the person (or other unit) each record belongs to.

    Pictures of 8 bits may be bytes (see `as_floats`); they are the same records as the floats that they stand for.
    `named` keeps the records' identities once they were asked for; who makes the same records again may share it.
    """

    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    unit: torch.Tensor | None = field(default=None, repr=False)
    named: list[Identities] = field(default_factory=list, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def identities(self) -> Identities:
        """What a record's own random numbers follow from: its content (and unit), never its place."""
        if not self.named:
            parts = [self.y, self.x] if self.unit is None else [self.unit, self.y, self.x]
            self.named.append(identities(*(part.cpu().numpy() for part in parts), value=_value))
        return self.named[0]

    def floats(self, device: str = "cpu") -> Records:
        """The same records as numbers to compute with, on a device."""
        return Records(as_floats(self.x.to(device)), self.y.to(device), self.unit, self.named)

    def take(self, rows: torch.Tensor) -> Records:
        """Some of the records, by their rows."""
        # A record keeps its name: among fewer, equal ones would be numbered anew.
        named = [names[rows.cpu().numpy()] for names in self.named]
        return Records(self.x[rows], self.y[rows], None if self.unit is None else self.unit[rows], named)


def _value(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows as the numbers they stand for: a record's name may not follow from how the others are kept."""
    found: npt.NDArray[Any] = as_floats(torch.from_numpy(rows)).numpy() if rows.dtype == np.uint8 else rows
    return found


def unit_prints(records: Records) -> Iterable[bytes]:
    """What the ledger knows people by: their codes, which follow from their ids alone."""
    if records.unit is None:
        return ()
    return (int(code).to_bytes(8, "little", signed=True) for code in torch.unique(records.unit))
