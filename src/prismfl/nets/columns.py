"""How the features of an encoded record are grouped into columns. Public: it comes from a declared schema.

A column is written "n" (a number in [-1, 1]), "b" (binary, -1 or +1), "c5" (a one-hot block of five places) or "p"
(a pixel in [0, 1]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prismfl.errors import UserError


@dataclass(frozen=True)
class Columns:
    """Feature numbers by type; `blocks` are (first feature, places) of categorical columns."""

    width: int
    numeric: tuple[int, ...] = ()
    binary: tuple[int, ...] = ()
    pixels: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, words: Sequence[str]) -> Columns:
        """Columns from their written form."""
        places: dict[str, list[int]] = {"n": [], "b": [], "p": []}
        blocks: list[tuple[int, int]] = []
        start = 0
        for word in words:
            if word in places:
                places[word].append(start)
                start += 1
            elif word[:1] == "c" and word[1:].isdigit() and int(word[1:]) > 0:
                blocks.append((start, int(word[1:])))
                start += int(word[1:])
            else:
                raise UserError(f"Expected a column as n, b, p or c with a number of places (c5), got '{word}'.")
        if not start:
            raise UserError("Expected at least one column, got none.")
        return cls(start, tuple(places["n"]), tuple(places["b"]), tuple(places["p"]), tuple(blocks))

    def squared_norm(self) -> float:
        """A public guess of a typical record's squared norm: what clipping bounds of moments are made of."""
        return len(self.blocks) + len(self.binary) + 0.35 * len(self.numeric) + 0.12 * len(self.pixels)

    def harden(self, x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """Real features to valid records: numbers clipped, one place per block (sampled from its weights, if a
        generator is given, else the largest), binaries -1 or +1, pixels in [0, 1]."""
        out = torch.zeros_like(x)
        for part, low in ((self.numeric, -1.0), (self.pixels, 0.0)):
            out[:, part] = x[:, part].clamp(low, 1.0)
        if self.binary:
            share = (x[:, self.binary] + 1) / 2
            cut = torch.full_like(share, 0.5) if generator is None else torch.rand(share.shape, generator=generator)
            out[:, self.binary] = (share > cut).to(x.dtype) * 2 - 1
        for start, width in self.blocks:
            weights = x[:, start : start + width]
            chosen = weights.argmax(1) if generator is None else _sampled(weights, generator)
            out[torch.arange(len(x)), start + chosen] = 1.0
        return out


def _sampled(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A place of each row with probability in proportion to its weight; negative weights count as zero."""
    share = weights.clamp(min=0) + 1e-9
    edges = share.cumsum(1)
    draw = torch.rand(len(weights), 1, generator=generator) * edges[:, -1:]
    return (draw > edges).sum(1).clamp(max=weights.shape[1] - 1)
