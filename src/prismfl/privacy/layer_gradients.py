"""The gradients of one layer for each record, in whatever form is cheapest to measure and to add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from prismfl import fast_conv

Params = Mapping[str, torch.Tensor]


class LayerGradients(Protocol):
    """One layer's gradients of each record, in whatever form is cheapest."""

    def squared_norms(self) -> torch.Tensor: ...

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]: ...


# Tensors whose gradients are wanted, and what makes the layer's gradients of them.
Tap = tuple[Sequence[torch.Tensor], Callable[..., LayerGradients]]


@dataclass(frozen=True)
class Rows:
    """Gradients as they are: a row a record."""

    rows: Mapping[str, torch.Tensor]

    def squared_norms(self) -> torch.Tensor:
        return torch.stack([squared_norms(r.flatten(1)) for r in self.rows.values()]).sum(0)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        used = self.rows if keep is None else {name: r[keep] for name, r in self.rows.items()}
        return {name: (factors @ r.flatten(1)).reshape(r.shape[1:]) for name, r in used.items()}


@dataclass(frozen=True)
class Kernels:
    """Gradients of a convolution's kernel, a row a record with its axes in an order of their own; and of its bias."""

    prefix: str
    rows: torch.Tensor
    order: tuple[int, ...]  # where (out, in, height, width) are in a row
    bias: torch.Tensor | None

    def squared_norms(self) -> torch.Tensor:
        norms = squared_norms(self.rows.flatten(1))
        return norms if self.bias is None else norms + squared_norms(self.bias)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        rows = {"weight": self.rows} | ({} if self.bias is None else {"bias": self.bias})
        found = Rows({self.prefix + name: r for name, r in rows.items()}).weighted_sum(factors, keep)
        return found | {self.prefix + "weight": found[self.prefix + "weight"].permute(self.order)}


@dataclass(frozen=True)
class TiledKernels:
    """The same, not written out, of a convolution by tiles; for small pictures."""

    prefix: str
    seen: fast_conv.Tiles
    norms: torch.Tensor
    back: torch.Tensor
    bias: torch.Tensor | None

    def squared_norms(self) -> torch.Tensor:
        return self.norms if self.bias is None else self.norms + squared_norms(self.bias)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        seen = self.seen if keep is None else self.seen.only(keep)
        back = (self.back if keep is None else self.back[keep]) * factors[:, None, None, None]
        found = {self.prefix + "weight": fast_conv.kernel_gradient(seen, fast_conv.spread(back))}
        if self.bias is None:
            return found
        return found | Rows({self.prefix + "bias": self.bias}).weighted_sum(factors, keep)


@dataclass(frozen=True)
class Outer:
    """Gradients of a linear layer: the outer products of what came back and what went in."""

    prefix: str
    came_back: torch.Tensor
    went_in: torch.Tensor
    bias: bool

    def squared_norms(self) -> torch.Tensor:
        inputs = squared_norms(self.went_in)
        return squared_norms(self.came_back) * (inputs + 1.0 if self.bias else inputs)

    def weighted_sum(self, factors: torch.Tensor, keep: torch.Tensor | None) -> dict[str, torch.Tensor]:
        back, inputs = (self.came_back, self.went_in) if keep is None else (self.came_back[keep], self.went_in[keep])
        weighted = back * factors[:, None]
        found = {self.prefix + "weight": weighted.T @ inputs}
        return found | ({self.prefix + "bias": weighted.sum(0)} if self.bias else {})


def tapped(value: torch.Tensor) -> torch.Tensor:
    return value if value.requires_grad else value.requires_grad_()


def squared_norms(rows: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.to(torch.float64).square()
