"""A record of several parts in one row, each part looked at by its own public encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder

MIDDLE, REACH = 128.0, 127.0  # as `data.parts` writes a column's number into a byte


class TableColumns(Encoder):
    """The columns of a table as they are: numbers in [-1, 1]."""

    name = "columns"
    layers = ("columns",)
    trained_on = "nothing: the columns as they are"
    sees = "table"

    def forward(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The numbers that the bytes stand for."""
        return {"columns": ((rows * 255.0 - MIDDLE) / REACH).clamp(-1.0, 1.0)}

    @property
    def digest(self) -> str:
        """Of the rule."""
        return hashlib.sha256(repr((self.name, MIDDLE, REACH)).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Place:
    """Where a part lies in a row, its shape, and what looks at it."""

    name: str
    start: int
    shape: tuple[int, ...]
    encoder: Encoder

    @property
    def width(self) -> int:
        """Cells of the part."""
        return int(torch.Size(self.shape).numel())


class Parted(Encoder):
    """All layers of all parts, called PART/LAYER. What a record lacks (its cells are all zero) is not a number: the
    frame behind takes such a block for nothing."""

    sees = "parts"

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__()
        self.places = tuple(places)
        self.inner = nn.ModuleList(place.encoder for place in places)
        self.name = "+".join(f"{place.name}:{place.encoder.name}" for place in places)
        known = all(place.encoder.layers for place in places)
        self.layers = self._layers() if known else ()
        self.pretrained = any(place.encoder.pretrained for place in places)
        self.trained_on = "; ".join(f"{place.encoder.name}: {place.encoder.trained_on}" for place in places)

    def _layers(self) -> tuple[str, ...]:
        return tuple(f"{place.name}/{layer}" for place in self.places for layer in place.encoder.layers)

    def forward(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The layers of every part, NaN where the record lacks it."""
        width = sum(place.width for place in self.places)
        if rows.dim() != 2 or rows.shape[1] != width:
            raise UserError(f"Expected records of {width} bytes for encoder '{self.name}', got {tuple(rows.shape)}.")
        found: dict[str, torch.Tensor] = {}
        for place in self.places:
            cells = rows[:, place.start : place.start + place.width]
            lacks = (cells == 0).all(1)
            for layer, numbers in place.encoder(cells.reshape(len(cells), *place.shape)).items():
                found[f"{place.name}/{layer}"] = numbers.masked_fill(lacks[:, None], float("nan"))
        return found

    @property
    def digest(self) -> str:
        """Of the parts' places and digests."""
        told = [(place.name, place.start, place.shape, place.encoder.digest) for place in self.places]
        return hashlib.sha256(repr(told).encode()).hexdigest()


def part_of(layer: str) -> str:
    """The part that a layer belongs to."""
    return layer.partition("/")[0]
