"""Weights, biases and inputs of at most 1e3 under which sums cancel, so that little but rounding is left of them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.kernels.networks import Batch, Network, Params

MOST = 1e3


def _normal(shape: torch.Size, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def signs(p: torch.Tensor) -> torch.Tensor:
    """All of the same size."""
    return MOST * _normal(p.shape, 0).sign()


def zero_sum(p: torch.Tensor) -> torch.Tensor:
    """The weights of each output sum to zero, up to rounding: an even input gives nothing."""
    rows = 200.0 * _normal(p.shape, 1).reshape(len(p), -1)
    return (rows - rows.mean(1, keepdim=True)).reshape(p.shape).clamp(-MOST, MOST)


def alternating(p: torch.Tensor) -> torch.Tensor:
    """Neighbours of opposite signs that differ in the last digits."""
    turn = 1.0 - 2.0 * (torch.arange(p.numel()) % 2).reshape(p.shape)
    return (0.999 * MOST * turn * (1.0 + 1e-6 * _normal(p.shape, 2))).clamp(-MOST, MOST)


def big_biases(p: torch.Tensor) -> torch.Tensor:
    """Large biases (and gains) over ordinary weights: what a layer sees is lost among the digits of its bias."""
    return torch.full_like(p, MOST) if p.dim() == 1 else p


def large(p: torch.Tensor) -> torch.Tensor:
    return (torch.full_like(p, MOST) if p.dim() == 1 else 100.0 * _normal(p.shape, 3)).clamp(-MOST, MOST)


def even(x: torch.Tensor) -> torch.Tensor:
    """Each record nearly one grey: a norm over a plane divides rounding by rounding."""
    grey = torch.linspace(0.1, 1.0, len(x)).reshape(-1, *[1] * (x.dim() - 1))
    return grey + 1e-6 * _normal(x.shape, 4)


def loud(x: torch.Tensor) -> torch.Tensor:
    return MOST * (0.5 + 1e-4 * _normal(x.shape, 5))


WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f.__name__: f for f in (signs, zero_sum, alternating, big_biases, large)
}
INPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"ordinary": lambda x: x, "even": even, "loud": loud}


def made(network: Network, weights: str, inputs: str, count: int) -> tuple[Params, Batch]:
    x, *others = network.batch(count)
    return {k: WEIGHTS[weights](p) for k, p in network.params.items()}, (INPUTS[inputs](x), *others)
