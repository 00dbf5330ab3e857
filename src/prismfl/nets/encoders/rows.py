"""Images as rows of one width, through a frozen public encoder: what a linear model on that encoder learns from.

The layers stand side by side, standardised by public images, along the leading public directions, clipped to norm one.
No private record has a part in that, so it costs nothing. A record is looked at by itself: its row is the same, bit
for bit, whoever else is there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.patches import Frame, fit_frame

WIDTH = 512  # numbers in a row, whatever the encoder: what the run costs and sends is known before it is opened
POWER = 0.4  # flattening of the public spectrum, as PRISM's features have it
MOST_PUBLIC = 2000


class Layered(Protocol):
    """A public encoder, as far as rows are made with it."""

    name: str
    layers: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of what it computes with, in hex."""

    def activations(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """One row of numbers an image, for each of its layers."""


class EncodedRows(nn.Module):
    """All layers of an encoder as one row of `WIDTH` numbers, of norm at most 1."""

    def __init__(self, encoder: Layered, frame: Frame) -> None:
        super().__init__()
        self.encoder, self.frame = encoder, frame

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A row an image, many at once."""
        found: torch.Tensor = self.frame(_side_by_side(self.encoder, images).nan_to_num(0.0, 0.0, 0.0))
        return found

    def one_by_one(self, images: torch.Tensor, shown: Callable[[int], None] = lambda _: None) -> torch.Tensor:
        """The same, each image by itself: rounding depends on a place in a batch. `shown` gets the number done."""
        rows = torch.zeros(len(images), WIDTH)
        with torch.no_grad():
            for i in range(len(images)):
                rows[i] = self(images[i : i + 1].clone())[0]  # a copy: all are aligned alike
                if i % 100 == 99:
                    shown(i + 1)
        return rows


class _Looked:
    """Public images and an encoder as a dictionary key: compared by content."""

    def __init__(self, encoder: Layered, images: torch.Tensor) -> None:
        self.encoder, self.images = encoder, images
        self.facts = (encoder.digest, tuple(images.shape), hash(images.cpu().numpy().tobytes()))

    def __hash__(self) -> int:
        return hash(self.facts)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Looked) and self.facts == other.facts


def encoded_rows(encoder: Layered, public: torch.Tensor) -> EncodedRows:
    """What everybody makes of the encoder and the public images; kept for the next call."""
    return _fit(_Looked(encoder, public[:MOST_PUBLIC]))


@lru_cache(maxsize=2)
def _fit(looked: _Looked) -> EncodedRows:
    encoder, images = looked.encoder, looked.images
    features = torch.cat([_side_by_side(encoder, part) for part in torch.split(images, 64)])
    if not bool(torch.isfinite(features).all()):
        raise UserError(f"Encoder '{encoder.name}' gives numbers that are not finite for public images; use another.")
    found = encoder.activations(images[:1])
    blocks = tuple(found[layer].shape[1] for layer in encoder.layers)
    return EncodedRows(encoder, fit_frame(features, rank=WIDTH, power=POWER, quantile=0.0, blocks=blocks))


def _side_by_side(encoder: Layered, images: torch.Tensor) -> torch.Tensor:
    found = encoder.activations(images)
    return torch.cat([found[layer] for layer in encoder.layers], 1)
