"""The gradients of one layer for each record, in whatever form is cheapest to measure and to add up.

What is measured is what is added: either the gradients are written out and both come from these numbers, or they are
outer products, measured and added in double precision. Whatever weights and records somebody chose, and whatever came
of them by rounding, a record then counts for no more than its factor times its norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from prismfl.privacy.mechanisms import Params as Params

# Squares that float32 adds up before double precision takes over, and records that are held in double at a time.
STRETCH, FEW_RECORDS = 256, 16


# More than sums of some thousand products can be wrong by in double precision, relative to their largest.
ROUNDING = 1e-12


class LayerGradients(Protocol):
    """One layer's gradients of each record, in whatever form is cheapest. Norms, factors and sums are doubles."""

    def squared_norms(self) -> torch.Tensor:
        """The squared norm of each record's gradient."""

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The sum of the records' gradients times their factors, by parameter; `keep` chooses the records, None all."""


# Tensors whose gradients are wanted, and what makes the layer's gradients of them.
Tap = tuple[Sequence[torch.Tensor], Callable[..., LayerGradients]]


@dataclass(frozen=True)
class Rows:
    """Gradients as they are: a row a record."""

    rows: Mapping[str, torch.Tensor]

    def squared_norms(self) -> torch.Tensor:
        """Of each record, over all its rows."""
        return torch.stack([squared_norms(r.flatten(1)) for r in self.rows.values()]).sum(0)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Of the rows (of the records in `keep`), in the parameters' shapes."""
        used = self.rows if keep is None else {name: r[keep] for name, r in self.rows.items()}
        return {name: weighted_sum(factors, r.flatten(1)).reshape(r.shape[1:]) for name, r in used.items()}


@dataclass(frozen=True)
class Kernels:
    """Gradients of a convolution's kernel, a row a record with its axes in an order of their own; and of its bias."""

    prefix: str
    rows: torch.Tensor
    order: tuple[int, ...]  # where (out, in, height, width) are in a row
    bias: torch.Tensor | None

    def squared_norms(self) -> torch.Tensor:
        """Of each record, over kernel and bias."""
        norms = squared_norms(self.rows.flatten(1))
        return norms if self.bias is None else norms + squared_norms(self.bias)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Of the rows (of the records in `keep`), with the kernel's axes back in torch's order."""
        rows = {"weight": self.rows} | ({} if self.bias is None else {"bias": self.bias})
        found = Rows({self.prefix + name: r for name, r in rows.items()}).weighted_sum(factors, keep)
        return found | {self.prefix + "weight": found[self.prefix + "weight"].permute(self.order)}


@dataclass(frozen=True)
class Outer:
    """Gradients of a linear layer: the outer products of cotangents and activations."""

    prefix: str
    cotangent: torch.Tensor
    activation: torch.Tensor
    bias: bool

    def squared_norms(self) -> torch.Tensor:
        """Of each record, from the norms of its two factors."""
        # Not in float32, where 1e-25 has no square: its product with a 1e30 would count for nothing.
        cotangents, inputs = (t.double().square().sum(1) for t in (self.cotangent, self.activation))
        return cotangents * (inputs + 1.0 if self.bias else inputs)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Of the outer products (of the records in `keep`), which are never written out."""
        cotangent, inputs = (
            (self.cotangent, self.activation) if keep is None else (self.cotangent[keep], self.activation[keep])
        )
        weighted = cotangent.double() * factors[:, None]
        found = {self.prefix + "weight": weighted.T @ inputs.double()}
        return found | ({self.prefix + "bias": weighted.sum(0)} if self.bias else {})


@dataclass(frozen=True)
class Outers:
    """Gradients of a linear layer that a record goes through several times: sums of outer products."""

    prefix: str
    cotangent: torch.Tensor  # (records, times, outputs)
    activation: torch.Tensor  # (records, times, inputs)
    bias: bool

    def squared_norms(self) -> torch.Tensor:
        """Of each record, from the products of its factors with each other; never too small."""
        cotangent, inputs = self.cotangent.double(), self.activation.double()
        more = 1.0 if self.bias else 0.0
        products = (cotangent @ cotangent.mT) * (inputs @ inputs.mT + more)
        # Products may cancel, and what is left is then rounding: as much as that can be is added.
        longest = (cotangent.square().sum(2) * (inputs.square().sum(2) + more)).sqrt().sum(1).square()
        return (products.sum((1, 2)) + ROUNDING * longest).clamp(min=0.0)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Of the sums of outer products (of the records in `keep`), which are never written out."""
        cotangent, inputs = (
            (self.cotangent, self.activation) if keep is None else (self.cotangent[keep], self.activation[keep])
        )
        weighted = (cotangent.double() * factors[:, None, None]).flatten(0, 1)
        found = {self.prefix + "weight": weighted.T @ inputs.double().flatten(0, 1)}
        return found | ({self.prefix + "bias": weighted.sum(0)} if self.bias else {})


def tapped(value: torch.Tensor) -> torch.Tensor:
    """The same tensor, with its gradient asked for."""
    return value if value.requires_grad else value.requires_grad_()


def squared_norms(rows: torch.Tensor) -> torch.Tensor:
    """Of each row, in double but for short stretches; infinite where a square is too large for float32."""
    whole = rows.shape[1] // STRETCH * STRETCH
    stretches = rows[:, :whole].view(len(rows), whole // STRETCH, STRETCH), rows[:, None, whole:]
    return torch.cat([torch.linalg.vector_norm(s, dim=2) for s in stretches], 1).double().square().sum(1)


def weighted_sum(factors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Of the rows, in double: in float32 a sum depends on who is added before whom."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for some, own in zip(torch.split(factors, FEW_RECORDS), torch.split(rows, FEW_RECORDS)):
        total += some @ own.double()
    return total


def reference(factors: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `squared_norms` and `weighted_sum` give, all in double."""
    return rows.double().square().sum(1), (factors[:, None] * rows.double()).sum(0)
