"""Noisy moments of encoded records: the start of a VAE's decoder, or a whole generator (a DP Gaussian copula).

The rows carry a constant 1, so that sums are divided by a noisy count and never by the true one; a record that is
clipped then only counts less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from prismfl.core.door import PrivateRecords, Rows
from prismfl.kernels.loss import Params
from prismfl.nets.columns import Columns

LEAST_SCALE = 0.03
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class Queries:
    """How often the door is asked, with which noise and Poisson rate. Every kind of generator asks alike.

    `doubt` is the standard error of the door's declared size: that of its noise, or of a rounded public number.
    """

    times: int
    sigma: float
    rate: float
    doubt: float = 0.0

    def batch(self, door: PrivateRecords) -> float:
        """The expected batch of a question to this door."""
        return self.rate * door.declared


@dataclass(frozen=True)
class Sums:
    """Noisy sums, their count and the noise of a mean. The count weighs the noisy one and the declared one."""

    total: torch.Tensor
    count: float
    noise: float


@dataclass(frozen=True)
class Start:
    """The mean of the encoded records, and the spread of numbers (1 elsewhere)."""

    mean: torch.Tensor
    scale: torch.Tensor

    def loc(self, columns: Columns) -> torch.Tensor:
        """The mean as a decoder's raw output: logits of binaries and pixels, log-weights of categories."""
        loc = self.mean.clone()
        binary, pixels = list(columns.binary), list(columns.pixels)
        loc[binary] = 2 * torch.atanh(self.mean[binary])
        loc[pixels] = torch.logit(self.mean[pixels], eps=0.01)
        loc[list(columns.flags)] = torch.logit(self.mean[list(columns.flags)], eps=LEAST_SHARE)
        for first, width in columns.blocks:
            loc[first : first + width] = self.mean[first : first + width].log()
        return loc

    def variance(self, columns: Columns) -> torch.Tensor:
        """The variance that the mean implies, numbers in units of their spread."""
        variance = torch.ones(columns.width)
        binary, pixels = list(columns.binary), list(columns.pixels)
        variance[binary] = 1 - self.mean[binary].square()
        likely = [*pixels, *columns.flags]
        variance[likely] = (self.mean[likely] * (1 - self.mean[likely])).clamp(min=LEAST_SCALE**2)
        for first, width in columns.blocks:
            share = self.mean[first : first + width]
            variance[first : first + width] = share * (1 - share)
        return variance


def with_labels(x: torch.Tensor, y: torch.Tensor, labels: int) -> torch.Tensor:
    """Records as flat rows, followed by their label's block where one generator serves all classes."""
    flat = x.flatten(1)
    if not labels:
        return flat
    return torch.cat([flat, (y[:, None] == torch.arange(labels, device=y.device)).to(flat.dtype)], 1)


def ask(door: PrivateRecords, rows: Rows, *, bound: float, queries: Queries) -> Sums:
    """The sum of `queries.times` noisy sums; the first coordinate of a row is the constant 1."""
    total = torch.zeros(())
    for _ in range(queries.times):
        total = total + door.noisy_sum(rows, bound=bound, sigma=queries.sigma, batch=queries.batch(door))
    noise = bound * queries.sigma * math.sqrt(queries.times)
    asked = queries.rate * queries.times
    doubt = asked * math.hypot(queries.doubt, 0.05 * door.declared)
    trust = noise**2 / (noise**2 + doubt**2)
    count = (1 - trust) * float(total[0]) + trust * asked * door.declared
    count = max(count, 0.5 * noise, 1e-6)
    return Sums(total[1:], count, noise / count)


def simplex(weights: torch.Tensor) -> torch.Tensor:
    """The nearest probabilities: noise that falls below zero is not handed to the rare places."""
    ordered = weights.sort(descending=True).values
    steps = torch.arange(1, len(weights) + 1, dtype=weights.dtype)
    shift = (ordered.cumsum(0) - 1) / steps
    keep = int((ordered > shift).nonzero().max())
    projected = (weights - shift[keep]).clamp(min=0) + LEAST_SHARE
    return projected / projected.sum()


def start(door: PrivateRecords, columns: Columns, *, queries: Queries, labels: int = 0) -> Start:
    """Noisy means and spreads of numbers (of those that may be missing: where they are not), weights of categories."""
    numeric = list(columns.numeric)

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        flat = with_labels(x, y, labels)
        return torch.cat([torch.ones(len(flat), 1), flat, flat[:, numeric].square()], 1)

    bound = math.sqrt(1.0 + columns.squared_norm() + 0.15 * len(numeric))
    sums = ask(door, rows, bound=bound, queries=queries)
    raw, squares = sums.total[: columns.width] / sums.count, torch.zeros(columns.width)
    squares[numeric] = sums.total[columns.width :] / sums.count
    squares[list(columns.flags)] = raw[list(columns.flags)]
    mean = _clamp(columns.given_present(raw), columns)
    scale = torch.ones(columns.width)
    variance = columns.given_present(squares)[numeric] - mean[numeric].square()
    scale[numeric] = variance.clamp(min=LEAST_SCALE**2, max=1.0).sqrt()
    return Start(mean, scale)


def covariance(
    door: PrivateRecords, columns: Columns, *, begin: Start, queries: Queries, labels: int = 0
) -> torch.Tensor:
    """The covariance of records around the start, numbers in units of its scale, cleaned of what is noise.

    Centred rows are shorter than raw ones, so that the same noise tells more.
    """
    upper = torch.triu_indices(columns.width, columns.width)

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        flat = with_labels(x, y, labels)
        centred = (flat - begin.mean) / begin.scale
        centred[:, list(columns.flagged)] *= columns.present(flat)  # a missing number lies at the mean
        return torch.cat([torch.ones(len(x), 1), centred[:, upper[0]] * centred[:, upper[1]]], 1)

    variance = begin.variance(columns)
    sums = ask(door, rows, bound=math.sqrt(1.0 + 0.5 * float(variance.sum()) ** 2), queries=queries)
    found = torch.zeros(columns.width, columns.width)
    found[upper[0], upper[1]] = sums.total / sums.count
    found = found + found.T - torch.diag(found.diagonal())
    # Clipping takes from the longest rows; what is left is stretched back to the variances that are known already.
    stretch = (variance / torch.maximum(found.diagonal(), 0.3 * variance)).sqrt()
    found = (found - torch.diag(found.diagonal())) * stretch * stretch[:, None]
    size = columns.width * max(1, columns.width - 1)
    energy = max(float(found.square().sum()), 1e-12)
    return found * max(0.0, 1.0 - size * sums.noise**2 / energy) + torch.diag(variance)


def fit_gaussian(door: PrivateRecords, columns: Columns, *, queries: Queries, labels: int = 0) -> Params:
    """Mean and a root of the covariance of the encoded records: a third of the queries goes to the mean."""
    first = max(1, queries.times // 3)
    begin = start(door, columns, queries=replace(queries, times=first), labels=labels)
    rest = replace(queries, times=queries.times - first)
    found = covariance(door, columns, begin=begin, queries=rest, labels=labels)
    return {"mean": begin.mean, "root": root(found) * begin.scale[:, None]}


def draw_gaussian(columns: Columns, tensors: Params, count: int, generator: torch.Generator) -> torch.Tensor:
    """Records from the Gaussian; binaries and flags are cut where their shares come out, a choice is its largest."""
    mean, root = tensors["mean"], tensors["root"]
    x = mean + torch.randn(count, columns.width, generator=generator) @ root.T
    at = list(columns.binary)
    spread = torch.linalg.vector_norm(root[at], dim=1)
    x[:, at] -= mean[at] - spread * torch.special.ndtri((1 + mean[at]) / 2)
    if columns.missing:
        at = list(columns.flags)
        spread = torch.linalg.vector_norm(root[at], dim=1)
        x[:, at] -= mean[at] - 0.5 - spread * torch.special.ndtri(mean[at].clamp(LEAST_SHARE, 1 - LEAST_SHARE))
    return columns.harden(x)


def _clamp(mean: torch.Tensor, columns: Columns) -> torch.Tensor:
    """Noisy means back to where means can lie."""
    clean = mean.clamp(-0.98, 0.98)
    likely = [*columns.pixels, *columns.flags]
    clean[likely] = clean[likely].clamp(min=0.0)
    for first, width in columns.blocks:
        clean[first : first + width] = simplex(mean[first : first + width])
    return clean


def root(covariance: torch.Tensor) -> torch.Tensor:
    """A root of the nearest covariance with the same variances."""
    values, vectors = torch.linalg.eigh(covariance.to(torch.float64))
    half = vectors * values.clamp(min=1e-6).sqrt()
    fit = (covariance.diagonal() / half.square().sum(1).clamp(min=1e-9)).sqrt()
    scaled: torch.Tensor = (half * fit[:, None]).to(torch.float32)
    return scaled
