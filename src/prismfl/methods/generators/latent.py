"""Records from noisy sums: marginals and correlations cleaned of noise, then a Gaussian copula that has both.

All of it is post-processing. The classes are cleaned together: a class's mean, spread and correlations are drawn to
those of all classes as far as the difference is noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prismfl.kernels.loss import Params
from prismfl.methods.generators.copula import Layout, places, symmetric
from prismfl.methods.generators.moments import LEAST_SHARE, simplex

GRID = 801
REACH = 4.0
ORDER = 9  # of the Hermite series of a column's quantiles
LEAST_VARIANCE = 0.02


@dataclass(frozen=True)
class Clean:
    """One class: the mean of its features; variances and covariances of positions, in units of the public scale.

    Those of numbers that may be missing are over the records that have them.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    covariance: torch.Tensor


@dataclass(frozen=True)
class Copula:
    """One class, ready to be drawn: each column's quantiles on a grid of normal scores, and a root of their
    correlations."""

    quantiles: torch.Tensor
    root: torch.Tensor


def clean(layout: Layout, parts: Sequence[Params]) -> list[Clean]:
    """Each class from its sums. `noise` holds the noise of the sums (in units of the scale) and of the products."""
    rows = [{name: tensor.double() for name, tensor in part.items()} for part in parts]
    counts = torch.stack([row["count"][0] for row in rows]).clamp(min=1e-6)
    weights = torch.stack([row["weight"][0] for row in rows]).clamp(min=1e-6)
    noise = torch.stack([row["noise"] for row in rows])
    share = counts / counts.sum()
    means = torch.stack([row["sums"] for row in rows]) / counts[:, None]
    means = _means(layout, means, share, (noise[:, 0] / counts).square())
    found = torch.stack([symmetric(row["products"], len(layout)) for row in rows]) / weights[:, None, None]
    error = (noise[:, 1] / weights).square()
    joint, size = (share[:, None, None] * found).sum(0), len(layout) ** 2
    out = []
    for c, mean in enumerate(means):
        common = float((share.square() * error).sum())
        apart = _difference_error(share, error, c)
        keep = _kept(found[c] - joint, size * apart)
        matrix = joint + keep * (found[c] - joint)
        left = keep**2 * float(error[c]) + (1 - keep) ** 2 * common
        # Noise is the same for every pair, so it is cleaned first; then pairs that are seldom seen count as the others.
        both = layout.together(mean @ layout.positions())
        variance, covariance = _variances(matrix.diagonal(), left), _spectral(matrix, math.sqrt(left))
        out.append(Clean(layout.columns.given_present(mean), variance / both.diagonal(), covariance / both))
    return out


def build(layout: Layout, part: Clean) -> Copula:
    """The normal scores whose quantile transforms have the clean correlations."""
    scores, weight = _grid()
    quantiles = torch.stack([_quantiles(layout, part, k, scores) for k in range(len(layout))])
    mean = quantiles @ weight
    variance = ((quantiles - mean[:, None]).square() @ weight).clamp(min=1e-9)
    # The products' own diagonal is clipped as they are; the marginals' variance only keeps it from being too small.
    diagonal = torch.maximum(part.variance, 0.3 * variance / layout.scale().square())
    target = (part.covariance / (diagonal[:, None] * diagonal).sqrt()).clamp(-0.99, 0.99)
    series = ((quantiles - mean[:, None]) / variance.sqrt()[:, None] * weight) @ _hermite(scores).T
    latent = _solve(series, target)
    latent.fill_diagonal_(1.0)
    values, vectors = torch.linalg.eigh(latent)
    root = vectors * values.clamp(min=1e-4).sqrt()
    return Copula(quantiles, root / torch.linalg.vector_norm(root, dim=1, keepdim=True))


def draw(layout: Layout, copula: Copula, count: int, generator: torch.Generator) -> torch.Tensor:
    """`count` encoded records."""
    z = torch.randn(count, len(layout), generator=generator, dtype=torch.float64) @ copula.root.T
    at = ((z + REACH) / (2 * REACH) * (GRID - 1)).clamp(0.0, GRID - 1.001)
    low = at.floor().long()
    out = torch.zeros(count, layout.columns.width)
    for k, (kind, first, width) in enumerate(layout.kinds):
        table, part = copula.quantiles[k], at[:, k] - low[:, k]
        if kind == "c":
            place = ((table[low[:, k]] + 1) / 2 * (width - 1)).round().long()
            out[torch.arange(count), first + place] = 1.0
        elif kind in "bf":
            out[:, first] = table[low[:, k]].to(out.dtype)
        else:
            value = table[low[:, k]] * (1 - part) + table[low[:, k] + 1] * part
            out[:, first] = value.to(out.dtype)
    out[:, list(layout.columns.flagged)] *= layout.columns.present(out)
    return out


def _kept(difference: torch.Tensor, noise: float) -> float:
    """The part of a difference that is more than noise (James and Stein's factor)."""
    return max(0.0, 1.0 - noise / max(float(difference.square().sum()), 1e-12))


def _difference_error(share: torch.Tensor, error: torch.Tensor, c: int) -> float:
    """The noise's variance in the difference between class c and the mean of all classes."""
    factor = -share.clone()
    factor[c] += 1.0
    return float((factor.square() * error).sum())


def _means(layout: Layout, means: torch.Tensor, share: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """Column by column, a class's mean is drawn to that of all classes as far as the difference is noise."""
    joint, scale = (share[:, None] * means).sum(0), layout.feature_scale()
    out = means.clone()
    for c in range(len(means)):
        apart = _difference_error(share, error, c)
        for _, first, width in layout.kinds:
            at = slice(first, first + width)
            gap = means[c, at] - joint[at]
            out[c, at] = joint[at] + _kept(gap, apart * float(scale[at].square().sum())) * gap
    return out


def _variances(found: torch.Tensor, error: float) -> torch.Tensor:
    """Variances of positions, drawn to their mean as far as they differ by noise only."""
    mean = found.mean().clamp(min=0.05)
    spread = max(float((found - mean).square().mean()), 1e-9)
    return (mean + max(0.0, 1.0 - error / spread) * (found - mean)).clamp(min=LEAST_VARIANCE)


def _spectral(matrix: torch.Tensor, noise: float) -> torch.Tensor:
    """Directions below the edge of a noise matrix's spectrum become equal; those above are kept."""
    size = len(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    keep = values > 2 * noise * math.sqrt(size)
    trace = max(float(matrix.trace()), LEAST_VARIANCE * size)
    rest = (trace - float(values[keep].sum())) / max(1, int((~keep).sum()))
    values = torch.where(keep, values, torch.full_like(values, max(rest, 0.05 * trace / size)))
    out: torch.Tensor = (vectors * values) @ vectors.T
    return out


def _grid() -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.linspace(-REACH, REACH, GRID, dtype=torch.float64)
    weight = torch.exp(-scores.square() / 2)
    return scores, weight / weight.sum()


def _quantiles(layout: Layout, part: Clean, k: int, scores: torch.Tensor) -> torch.Tensor:
    """A column's positions at the grid's normal scores."""
    from scipy.special import betaincinv

    kind, first, width = layout.kinds[k]
    mean, share = part.mean[first : first + width], torch.special.ndtr(scores)
    if kind == "c":
        edges = simplex(mean).cumsum(0)
        return places(width)[torch.searchsorted(edges, share).clamp(max=width - 1)]
    if kind == "b":
        high = float(((1 + mean[0]) / 2).clamp(0.01, 0.99))
        return torch.where(share > 1 - high, 1.0, -1.0).double()
    if kind == "f":
        high = float(mean[0].clamp(LEAST_SHARE, 1 - LEAST_SHARE))
        return torch.where(share > 1 - high, 1.0, 0.0).double()
    # A number: the beta distribution on its declared interval with this mean and variance.
    length = 2.0 if kind == "n" else 1.0
    middle = min(max((float(mean[0]) + length - 1) / length, 0.005), 0.995)
    most = middle * (1 - middle)
    variance = float(part.variance[k] * layout.scale()[k] ** 2) / length**2
    strength = most / min(max(variance, 2e-4), 0.9 * most) - 1
    values = torch.from_numpy(betaincinv(middle * strength, (1 - middle) * strength, share.numpy()))
    return values * length - (length - 1)


def _hermite(scores: torch.Tensor) -> torch.Tensor:
    """Orthonormal Hermite polynomials of orders 1 to ORDER at the scores."""
    rows = [torch.ones_like(scores), scores]
    for n in range(1, ORDER):
        rows.append(scores * rows[-1] - n * rows[-2])
    return torch.stack([row / math.sqrt(math.factorial(n)) for n, row in enumerate(rows)][1:])


def _solve(series: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """By bisection, the latent correlations at which the columns' correlations are the target."""
    low = torch.full_like(target, -0.999)
    high = -low
    for _ in range(30):
        middle = (low + high) / 2
        found = torch.zeros_like(target)
        for h in reversed(range(ORDER)):
            found = (found + torch.outer(series[:, h], series[:, h])) * middle
        below = found < target
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
