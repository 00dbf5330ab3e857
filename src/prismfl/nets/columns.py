"""How the features of an encoded record are grouped into columns. Public: it comes from a declared schema.

A column is written "n" (a number in [-1, 1]), "b" (binary, -1 or +1), "c5" (a one-hot block of five places), "p" (a
pixel in [0, 1]) or "m" (a number that may be missing: two features, the number, which is 0 where it is missing, and a
flag, which is 1 there and else 0). A choice that may be missing is a block with one more place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prismfl.errors import UserError


@dataclass(frozen=True)
class Columns:
    """Feature numbers by type; `blocks` are (first feature, places) of categorical columns.

    The number of an "m" stands among `numeric` too; `missing` are (number, flag) of such columns.
    """

    width: int
    numeric: tuple[int, ...] = ()
    binary: tuple[int, ...] = ()
    pixels: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    missing: tuple[tuple[int, int], ...] = ()

    @property
    def flags(self) -> tuple[int, ...]:
        """The features that say whether a number is missing."""
        return tuple(flag for _, flag in self.missing)

    @property
    def flagged(self) -> tuple[int, ...]:
        """The numbers that may be missing, in the order of their flags."""
        return tuple(number for number, _ in self.missing)

    @classmethod
    def parse(cls, words: Sequence[str]) -> Columns:
        """Columns from their written form."""
        places: dict[str, list[int]] = {"n": [], "b": [], "p": []}
        blocks: list[tuple[int, int]] = []
        missing: list[tuple[int, int]] = []
        start = 0
        for word in words:
            if word in places:
                places[word].append(start)
                start += 1
            elif word == "m":
                places["n"].append(start)
                missing.append((start, start + 1))
                start += 2
            elif word[:1] == "c" and word[1:].isdigit() and int(word[1:]) > 0:
                blocks.append((start, int(word[1:])))
                start += int(word[1:])
            else:
                raise UserError(f"Expected a column as n, m, b, p or c with a number of places (c5), got '{word}'.")
        if not start:
            raise UserError("Expected at least one column, got none.")
        numbers, binaries, pixels = (tuple(places[letter]) for letter in "nbp")
        return cls(start, numbers, binaries, pixels, tuple(blocks), tuple(missing))

    def squared_norm(self) -> float:
        """A public guess of a typical record's squared norm: what clipping bounds of moments are made of."""
        small = 0.35 * len(self.numeric) + 0.12 * (len(self.pixels) + len(self.missing))
        return len(self.blocks) + len(self.binary) + small

    def present(self, x: torch.Tensor) -> torch.Tensor:
        """(records, numbers that may be missing): 1 where the number is there, 0 where it is missing."""
        return 1.0 - x[:, list(self.flags)]

    def given_present(self, means: torch.Tensor, least: float = 0.05) -> torch.Tensor:
        """Means of features as they are, with those of numbers that may be missing over the records that have them."""
        found = means.clone()
        there = (1.0 - means[..., list(self.flags)]).clamp(min=least)
        found[..., list(self.flagged)] = means[..., list(self.flagged)] / there
        return found

    def harden(self, x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """Real features to valid records: numbers clipped, one place per block (sampled from its weights, if a
        generator is given, else the largest), binaries -1 or +1, pixels in [0, 1], flags 0 or 1."""
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
        if self.missing:
            at = list(self.flags)
            cut = torch.full((len(x), len(at)), 0.5)
            cut = cut if generator is None else torch.rand(cut.shape, generator=generator)
            out[:, at] = (x[:, at] > cut).to(x.dtype)
            out[:, list(self.flagged)] *= self.present(out)
        return out


def _sampled(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A place of each row with probability in proportion to its weight; negative weights count as zero."""
    share = weights.clamp(min=0) + 1e-9
    edges = share.cumsum(1)
    draw = torch.rand(len(weights), 1, generator=generator) * edges[:, -1:]
    return (draw > edges).sum(1).clamp(max=weights.shape[1] - 1)
