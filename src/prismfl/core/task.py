"""The public facts of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from prismfl.data.parts import Parts
from prismfl.privacy.cost import Cost, Relation


class Encodes(Protocol):
    """A public encoder, as far as a method may know it (`nets.encoders` has them)."""

    name: str
    layers: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of what it computes with, in hex."""

    def activations(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """One row of numbers an image, for each of its layers."""


@dataclass(frozen=True)
class Task:
    """Public facts of a run. Nothing here may be computed from private records."""

    data: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    sites: tuple[str, ...]
    records: int
    model: str = "convnet"
    unit: str = "record"
    relation: Relation = "add-remove"
    delta: float = 1e-5
    participation: float = 1.0
    device: str = "cpu"
    public: torch.Tensor | None = field(default=None, repr=False, compare=False)
    encoder: Encodes | None = field(default=None, repr=False, compare=False)
    parts: Parts | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """What a record is: of declared parts "text" or "patient", else "image" with three axes, otherwise "table"."""
        if self.parts is not None:
            return self.parts.kind
        return "image" if len(self.shape) == 3 else "table"

    @property
    def asked(self) -> int:
        """How many sites take part in each round."""
        return max(1, int(self.participation * len(self.sites) + 0.5))

    def rate(self, batch: float) -> float:
        """The same public rate that the door uses."""
        return min(1.0, batch / self.records)

    def gaussian(self, sigma: float, *, batch: float | None = None, times: int = 1) -> Cost:
        """The cost of `times` Gaussian answers at a site, for plans."""
        rate = 1.0 if batch is None else self.rate(batch)
        return Cost.gaussian(sigma, rate=rate, times=times, unit=self.unit, relation=self.relation)
