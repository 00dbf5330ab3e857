"""Several public encoders side by side, as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder


class Joined(Encoder):
    """Every layer of every part, called PART/LAYER. Each part brings the images to its own channels and side."""

    def __init__(self, parts: Sequence[Encoder]) -> None:
        super().__init__()
        self.prefixes = tuple(part.name for part in parts)
        if len(set(self.prefixes)) != len(parts):
            raise UserError(f"Two encoders side by side are called the same in '{'+'.join(self.prefixes):.80}'.")
        self.parts = nn.ModuleList(parts)
        self.name = "+".join(self.prefixes)
        known = all(part.layers for part in parts)
        self.layers = tuple(f"{part.name}/{layer}" for part in parts for layer in part.layers) if known else ()
        self.pretrained = any(part.pretrained for part in parts)
        self.trained_on = "; ".join(f"{part.name}: {part.trained_on}" for part in parts)

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """The layers of all parts."""
        found: dict[str, torch.Tensor] = {}
        for prefix, part in zip(self.prefixes, self.parts):
            found |= {f"{prefix}/{layer}": rows for layer, rows in part(images).items()}
        return found

    @property
    def digests(self) -> list[str]:
        """Those of the parts."""
        return [part.digest for part in self.parts if isinstance(part, Encoder)]

    @property
    def digest(self) -> str:
        """Of the parts' names and digests, in their order."""
        return hashlib.sha256(repr(list(zip(self.prefixes, self.digests))).encode()).hexdigest()
