"""The arithmetic of differential privacy: sample, bound, sum, add noise. Nothing here knows where records come from.

Each function takes tensors and public numbers and returns tensors; the doors in `core` are their only
callers on private data and charge for each call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from prismfl.rng import Identities, NoiseStream, RecordDraws

Params = Mapping[str, torch.Tensor]
GRID_BITS = 12
# A hair below the bound, so that the rounding of float32 sums cannot lift a clipped norm above it.
SLACK = 1.0 + 5e-6
# Below this even a double's square is nothing.
SMALLEST = 1e-100
NORM_ORDER = {"gaussian": 2.0, "laplace": 1.0}


def poisson_indices(units: Identities, *, rate: float, draws: RecordDraws) -> torch.Tensor:
    """Each of the units independently with probability `rate`, by a coin of its own; possibly none."""
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"Expected a sampling rate in (0, 1], got {rate}.")
    drawn = draws.uniform(units)
    return torch.nonzero(drawn < rate).flatten()


def clip_factors(norms: torch.Tensor, bound: float) -> torch.Tensor:
    """What to multiply each row by so that its norm is at most `bound`; 0 for rows that are not finite."""
    if not bound > SMALLEST:
        raise ValueError(f"Expected a clipping bound > {SMALLEST}, got {bound}.")
    norms = norms.to(torch.float64)
    finite = torch.isfinite(norms)
    if math.isinf(bound):
        return finite.to(norms.dtype)
    factors = torch.where(norms > bound / SLACK, bound / (norms * SLACK), torch.ones_like(norms))
    return torch.where(finite, factors, torch.zeros_like(factors))


def clip_rows(rows: torch.Tensor, bound: float, *, kind: str = "gaussian") -> torch.Tensor:
    """Rows scaled into the L2 ball (L1 for Laplace noise) of radius `bound`; rows with NaN or infinity become zero."""
    rows = rows.to(torch.float64)
    norms = torch.linalg.vector_norm(rows, ord=NORM_ORDER[kind], dim=1)
    factors = clip_factors(norms, bound)
    clean = torch.where(torch.isfinite(norms)[:, None], rows, torch.zeros_like(rows))
    return clean * factors[:, None]


def add_noise(
    total: torch.Tensor, *, bound: float, sigma: float, stream: NoiseStream, kind: str = "gaussian"
) -> torch.Tensor:
    """`total` plus noise of scale sigma * bound, rounded to a public power-of-two grid far below that scale.

    The grid depends on sigma and bound only, so the low bits of the answer say nothing about the sum.
    """
    if not sigma >= 0.0 or math.isinf(sigma):
        raise ValueError(f"Expected a finite sigma >= 0, got {sigma}.")
    total = total.to(torch.float64)
    if sigma == 0.0:
        return total
    scale = sigma * bound
    if not math.isfinite(scale):
        raise ValueError(f"Expected a finite clipping bound with sigma {sigma}, got {bound}.")
    draws = stream.normal(total.numel()) if kind == "gaussian" else stream.laplace(total.numel())
    grid = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    return torch.round((total + scale * draws.reshape(total.shape).to(total.device)) / grid) * grid


def mean_by_unit(rows: torch.Tensor, unit: torch.Tensor, units: int) -> torch.Tensor:
    """One row a unit (a patient, say): the mean of its records' rows, so that the unit counts once."""
    sums = torch.zeros(units, rows.shape[1], dtype=torch.float64, device=rows.device)
    sums.index_add_(0, unit, rows.to(torch.float64))
    sizes = torch.bincount(unit, minlength=units).clamp(min=1).to(sums)
    return sums / sizes[:, None]


def triangle(matrix: torch.Tensor) -> torch.Tensor:
    """A symmetric matrix as a vector of the same norm: the upper triangle, off-diagonal entries times sqrt 2."""
    size = matrix.shape[0]
    rows, cols = torch.triu_indices(size, size)
    scale = torch.where(rows == cols, 1.0, math.sqrt(2.0)).to(matrix)
    return matrix[rows, cols] * scale


def from_triangle(vector: torch.Tensor, size: int) -> torch.Tensor:
    """The inverse of `triangle`."""
    rows, cols = torch.triu_indices(size, size)
    upper = torch.zeros(size, size, dtype=vector.dtype)
    upper[rows, cols] = vector / torch.where(rows == cols, 1.0, math.sqrt(2.0)).to(vector)
    return upper + torch.triu(upper, 1).T


def clipped_moments(
    rows: torch.Tensor, y: torch.Tensor, *, classes: int, second: int, scale: float, bound: float, share: torch.Tensor,
    apart: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Sums over records of v = (onehot(y) x row, scale * q q') with q the row's first `second` entries, |v| <= bound.

    With `apart`, q q' is a class's own as well, and there is a matrix for each; |v| is the same.
    `share` multiplies each clipped v: 1 for records, 1 / (records of the unit) where a unit counts once. The outer
    products are never written out: |q q'| = |q|^2 gives their norm and one matrix product their sum. All in double:
    a factor that takes 1e30 back to the bound is no float32, and half of |v| may lie in numbers that float32 rounds up.
    """
    rows = rows.double()
    q = rows[:, :second]
    norms = torch.sqrt(rows.square().sum(1) + (scale * q.square().sum(1)).square())
    weights = clip_factors(norms, bound) * share.to(norms)
    clean = torch.where(torch.isfinite(norms)[:, None], rows, torch.zeros_like(rows))
    sums = torch.zeros(classes, rows.shape[1], dtype=torch.float64)
    sums.index_add_(0, y.cpu(), (clean * weights[:, None]).cpu())
    q = clean[:, :second]
    if not apart:
        return sums, scale * ((q * weights[:, None]).T @ q).cpu()
    own = [(q * (weights * (y == c).to(weights))[:, None]).T @ q for c in range(classes)]
    return sums, scale * torch.stack(own).cpu()
