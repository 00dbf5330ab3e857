"""The statistics of many sites as they arrive: one growing tensor a name, so that thousands of them are held once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch

from prismfl.kernels.loss import Params

FIRST = 16  # rows to begin with; the room doubles when it is full


class Stacked(Sequence[Params]):
    """Releases in the order of their arrival; each is a view of the whole."""

    def __init__(self) -> None:
        self._rows: dict[str, torch.Tensor] = {}
        self._count = 0

    def add(self, released: Params) -> None:
        """One release more, of the names and shapes of the first."""
        for name, tensor in released.items():
            rows = self._rows.get(name)
            if rows is None:
                rows = tensor.new_empty((FIRST, *tensor.shape))
            elif self._count == len(rows):
                rows = torch.cat([rows, torch.empty_like(rows)])
            rows[self._count] = tensor
            self._rows[name] = rows
        self._count += 1

    def stack(self, name: str) -> torch.Tensor:
        """All releases' tensors of a name, one above the other: no copy."""
        return self._rows[name][: self._count]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Params: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Params]: ...

    def __getitem__(self, place: int | slice) -> Params | Sequence[Params]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return {name: rows[: self._count][place] for name, rows in self._rows.items()}


def stack(releases: Sequence[Params], name: str) -> torch.Tensor:
    """The releases' tensors of a name, one above the other."""
    return releases.stack(name) if isinstance(releases, Stacked) else torch.stack([r[name] for r in releases])
