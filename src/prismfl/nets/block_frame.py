"""Public coordinates of records of several parts: each part a frame of its own, with its share of the length.

A part's coordinates have norm at most the root of its share, and the shares sum to one, so the whole row has norm at
most one: one sensitivity for all parts. A part that a record lacks is a block of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.patches import Frame, fit_frame


class BlockFrame(Frame):
    """Frames side by side, and all of them as one whose basis has a block for each part."""

    def __init__(
        self, frames: Sequence[Frame], widths: Sequence[int], shares: Sequence[float], lengths: Sequence[float]
    ) -> None:
        super().__init__(
            torch.cat([frame.mean for frame in frames]),
            torch.cat([frame.std for frame in frames]),
            torch.block_diag(*(math.sqrt(s) / frame.clip * frame.basis for s, frame in zip(shares, frames))),  # type: ignore[no-untyped-call]
            values=torch.cat([s * frame.values for s, frame in zip(shares, frames)]),
            unit=torch.cat([s * frame.unit for s, frame in zip(shares, frames)]),
            clip=1.0,
        )
        self.frames, self.widths, self.shares = nn.ModuleList(frames), tuple(widths), tuple(shares)
        self.lengths = tuple(lengths)

    @property
    def ranks(self) -> tuple[int, ...]:
        """How many coordinates each part has."""
        return tuple(frame.basis.shape[1] for frame in self._frames)

    @property
    def _frames(self) -> list[Frame]:
        return [frame for frame in self.frames if isinstance(frame, Frame)]

    def places(self) -> list[slice]:
        """Where the coordinates of each part lie."""
        ends = torch.tensor(self.ranks).cumsum(0).tolist()
        return [slice(end - rank, end) for end, rank in zip(ends, self.ranks)]

    def part(self, k: int) -> Frame:
        """The frame of one part."""
        return self._frames[k]

    def back(self, k: int, rows: torch.Tensor) -> torch.Tensor:
        """The features of a part that a block of coordinates stands for, as far as its directions go. Of a row that
        was clipped the length is not known; it is taken for the mean one of public records."""
        frame, scale = self._frames[k], self.lengths[k] / math.sqrt(self.shares[k])
        turned = (scale * rows.double()) @ torch.linalg.pinv(frame.basis.double())
        found: torch.Tensor = frame.mean + frame.std * turned.float()
        return found

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Coordinates of norm at most 1."""
        return self.clipped(self.unclipped(features))

    def unclipped(self, features: torch.Tensor) -> torch.Tensor:
        """Coordinates before the clip; zeros for a part that is not there."""
        found = []
        for frame, share, block in zip(self._frames, self.shares, torch.split(features, list(self.widths), 1)):
            there = torch.isfinite(block).all(1, keepdim=True)
            turned = ((block.nan_to_num(0.0, 0.0, 0.0) - frame.mean) / frame.std) @ frame.basis
            found.append(torch.where(there, math.sqrt(share) / frame.clip * turned, 0.0))
        return torch.cat(found, 1)

    def clipped(self, rows: torch.Tensor) -> torch.Tensor:
        """Each part's coordinates clipped to the root of its share."""
        found = []
        for share, block in zip(self.shares, torch.split(rows, list(self.ranks), 1)):
            norms: torch.Tensor = block.norm(dim=1, keepdim=True)
            found.append(block / (norms / math.sqrt(share)).clamp_min(1.0))
        return torch.cat(found, 1)


def fit_blocks(
    features: torch.Tensor,
    *,
    layers: Sequence[Sequence[int]],
    shares: Sequence[float],
    rank: int,
    power: float,
    quantiles: Sequence[float],
) -> BlockFrame:
    """A frame for each part, from public features; `layers` are the widths of the layers of each part, `quantiles` of
    the public norms is where the clip of each sits."""
    widths = [sum(inner) for inner in layers]
    parts = shares_of(shares, len(layers))
    ranks = dealt(rank, parts, widths)
    frames = [
        fit_frame(block, rank=own, power=power, quantile=quantile, blocks=inner)
        for block, own, inner, quantile in zip(torch.split(features, widths, 1), ranks, layers, quantiles)
    ]
    lengths = [_length(frame, block) for frame, block in zip(frames, torch.split(features, widths, 1))]
    return BlockFrame(frames, widths, parts, lengths)


def _length(frame: Frame, block: torch.Tensor) -> float:
    """What a coordinate of 1 stood for before the clip, on average over public records."""
    norms = (((block - frame.mean) / frame.std) @ frame.basis).norm(dim=1)
    return float(norms.clamp_min(frame.clip).mean())


def shares_of(given: Sequence[float], parts: int) -> tuple[float, ...]:
    """The shares that sum to one; equal ones where none are given."""
    if not given:
        return (1.0 / parts,) * parts
    if len(given) != parts or min(given) <= 0:
        raise UserError(f"Expected a share > 0 for each of the {parts} parts (part_shares), got {list(given)}.")
    return tuple(share / sum(given) for share in given)


def dealt(rank: int, shares: Sequence[float], widths: Sequence[int]) -> list[int]:
    """`rank` directions dealt by the shares, no part more than it has numbers; what is left over goes to the others,
    and to the last part where all are full (directions that it lacks are zeros)."""
    if rank < len(shares):
        raise UserError(f"Expected at least a direction for each of the {len(shares)} parts (rank), got {rank}.")
    found = [1] * len(shares)
    for _ in range(rank - len(shares)):
        open_ = [i for i, width in enumerate(widths) if found[i] < width]
        best = max(open_, key=lambda i: shares[i] / (found[i] + 1)) if open_ else len(found) - 1
        found[best] += 1
    return found
