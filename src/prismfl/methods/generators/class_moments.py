"""What a class of pictures looks like: noisy means and covariances among the low frequencies, from two questions.

The first gives each class's mean and size, the second its squares around that mean. A class's covariance is the common
one of all classes plus what stands out of the noise of its own. Everything made of the answers is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from prismfl.core.door import PrivateRecords
from prismfl.methods.generators.images import CLEAR
from prismfl.nets.frequencies import Coefficients, Gaussians
from prismfl.privacy.mechanisms import from_triangle, triangle

SHARE_COUNT = 0.1  # of the squared sensitivity of the first question: sizes
SHARE_MEAN = 0.02  # and of the second: sums around the mean, which are not used
LEAST, TINY = 0.01, 1e-4  # no variance is smaller than this part of the largest, nor than this


@dataclass(frozen=True)
class ClassMoments:
    """Public description of the questions. `bound` and `spread` are the root mean square pixel above which a picture,
    or what is left of it without its class's mean, is dimmed."""

    space: Coefficients
    classes: int
    sigma: float
    bound: float = 0.6
    spread: float = 0.33

    queries = 2
    batch = None  # every record answers
    together = 2.0  # both answers stand in one row

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answers: a mean, a size and squares for each class."""
        count = self.space.count
        return (1, self.classes, 1 + count + count * (count + 1) // 2)

    def ask(self, door: PrivateRecords) -> torch.Tensor:
        """The noisy answers to both questions, (1, classes, width), in units of a record's bound."""
        first, _ = door.noisy_moments(self._pictures, second=0, scale=0.0, bound=1.0, sigma=self.sigma)
        centres = self._means(first, sites=1)

        def around(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            rows = self.space.of(x.clamp(0.0, 1.0)) - centres.to(x.device)[y]
            return math.sqrt(SHARE_MEAN) * _within(rows, self.spread * self._unit)

        scale = math.sqrt(1.0 - SHARE_MEAN) / SHARE_MEAN
        _, second = door.noisy_moments(
            around, second=self.space.count, scale=scale, bound=1.0, sigma=self.sigma, apart=True
        )
        return torch.cat([first, torch.stack([triangle(m) for m in second])], 1)[None]

    def counts(self, sums: torch.Tensor, *, records: float) -> torch.Tensor:
        """Estimated records of each class."""
        return sums[0, :, self.space.count] / math.sqrt(SHARE_COUNT)

    def total_noise(self, *, records: float) -> float:
        """Standard deviation of `counts`."""
        return self.sigma / math.sqrt(SHARE_COUNT)

    def gaussians(self, sums: torch.Tensor, *, sites: int = 1) -> Gaussians:
        """A Gaussian a class out of the answers of so many sites, added up."""
        found, count, sizes = sums[0].double(), self.space.count, self._sizes(sums[0], sites=sites)
        unit = (self.spread * self._unit) ** 2 / math.sqrt(1.0 - SHARE_MEAN)
        squares = torch.stack([from_triangle(row, count) for row in found[:, count + 1 :]]) * unit
        # The largest eigenvalue of a symmetric matrix of nothing but the noise.
        edge = math.sqrt(2.0 * count * sites) * self.sigma * unit
        common = _clear(squares.sum(0) / sizes.sum(), math.sqrt(self.classes) * edge / float(sizes.sum()))
        own = [common + _clear(s / n - common, edge / n) for s, n in zip(squares, sizes.tolist())]
        variance, axes = torch.linalg.eigh(torch.stack(own))
        least = max(LEAST * float(variance.max()), TINY)
        return Gaussians(self._means(sums[0], sites=sites), axes, variance.clamp(min=least))

    @property
    def _unit(self) -> float:
        """The length of a picture whose root mean square pixel is 1."""
        return math.sqrt(math.prod(self.space.image))

    def _pictures(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = _within(self.space.of(x.clamp(0.0, 1.0)), self.bound * self._unit)
        size = torch.full((len(x), 1), math.sqrt(SHARE_COUNT)).to(rows)
        return torch.cat([math.sqrt(1.0 - SHARE_COUNT) * rows, size], 1)

    def _means(self, first: torch.Tensor, *, sites: int) -> torch.Tensor:
        sums = first[:, : self.space.count].double() / math.sqrt(1.0 - SHARE_COUNT)
        return sums / self._sizes(first, sites=sites)[:, None] * (self.bound * self._unit)

    def _sizes(self, first: torch.Tensor, *, sites: int) -> torch.Tensor:
        """Sizes to divide by: a class that does not stand out of the noise is near nothing, not far away."""
        clear = CLEAR * self.total_noise(records=0.0) * math.sqrt(sites)
        return (first[:, self.space.count].double() / math.sqrt(SHARE_COUNT)).clamp(min=max(1.0, clear))


def _within(rows: torch.Tensor, length: float) -> torch.Tensor:
    """Rows in units of `length`, none longer than 1."""
    scaled = rows / length
    inside: torch.Tensor = scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=1.0)
    return inside


def _clear(matrix: torch.Tensor, edge: float) -> torch.Tensor:
    """A symmetric matrix without its noise, whose own largest eigenvalue is `edge`.

    Noise lengthens what is larger than itself by a known amount, which is taken off; what is not larger is left out.
    """
    values, axes = torch.linalg.eigh(matrix)
    size = values.abs().clamp(min=edge)
    shorter = values.sign() * 0.5 * (size + (size.square() - edge**2).sqrt())
    kept = torch.where(values.abs() > edge, shorter, torch.zeros_like(values))
    clean: torch.Tensor = axes @ torch.diag(kept) @ axes.T
    return clean
