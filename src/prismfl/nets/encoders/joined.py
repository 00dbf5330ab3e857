"""Several public encoders side by side, as one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn

from prismfl.nets.encoders.base import Encoder


class Joined(Encoder):
    """Every layer of every part, called PART/LAYER. Each part brings the images to its own channels and side."""

    def __init__(self, parts: Mapping[str, Encoder]) -> None:
        super().__init__()
        self.prefixes = tuple(parts)
        self.parts = nn.ModuleList(parts.values())
        self.name = "+".join(parts)
        known = all(part.layers for part in parts.values())
        self.layers = tuple(f"{p}/{layer}" for p, part in parts.items() for layer in part.layers) if known else ()
        self.pretrained = any(part.pretrained for part in parts.values())
        self.trained_on = "; ".join(f"{p}: {part.trained_on}" for p, part in parts.items())

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
