"""Raw records of a site, and the names that their own random numbers follow from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from prismfl.rng import Identities, identities


@dataclass(frozen=True)
class Records:
    """Raw records of a site; `unit` numbers the person (or other unit) each record belongs to.

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
            self.named.append(identities(*(part.cpu().numpy() for part in parts)))
        return self.named[0]

    def take(self, rows: torch.Tensor) -> Records:
        """Some of the records, by their rows."""
        # A record keeps its name: among fewer, equal ones would be numbered anew.
        named = [names[rows.cpu().numpy()] for names in self.named]
        return Records(self.x[rows], self.y[rows], None if self.unit is None else self.unit[rows], named)


def unit_prints(records: Records) -> Iterable[bytes]:
    """What the ledger knows people by: their codes, which follow from their ids alone."""
    if records.unit is None:
        return ()
    return (int(code).to_bytes(8, "little", signed=True) for code in torch.unique(records.unit))
