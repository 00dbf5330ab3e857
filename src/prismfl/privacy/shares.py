"""Noise in shares: what each site adds so that a sum over any quorum of them holds the promised noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from prismfl.errors import UserError
from prismfl.privacy.cost import Cost, Relation

if TYPE_CHECKING:  # an idle site reads its config, and has no torch
    from prismfl.rng import NoiseStream

MODULUS_BITS = 64


SMALLEST_SHARE = 4.0
"""The least standard deviation of a noise share, in integer steps: above it a sum of discrete Gaussians cannot be
told from a discrete Gaussian (the distance is below 10 n exp(-2 pi^2 s^2 / 2) < 1e-60)."""


MOST_UNITS = 2.0**32
"""More units than any site has: a sum above this many bounds is refused."""


MOST_NUMBERS = 2**26
"""The longest vector that is added up: 512 MB of masked numbers, the most that a message holds."""


Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Secrecy:
    """How a run asks for secure sums: nothing opens below the quorum, and `colluding` sites may talk to the server."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    quorum: Annotated[int, Field(ge=2, description="the sum opens with at least so many sites; more than half of them")]
    colluding: Annotated[
        int,
        Field(
            ge=0,
            description="so many sites may tell the server all they know; quorum - colluding sites make up the noise, "
            "each adds its part (1: each adds all of it)",
        ),
    ] = 0


@dataclass(frozen=True)
class Rules:
    """What everybody agrees on before the sum. `grid` is the size of an integer step; `bound` is one unit's L2 norm."""

    sites: tuple[str, ...]
    quorum: int
    length: int
    bound: float
    sigma: float
    grid: float
    largest: float
    colluding: int = 0
    label: str = "sum"

    def __post_init__(self) -> None:
        n = len(self.sites)
        if len(set(self.sites)) != n or n < 2:
            raise UserError(f"Expected at least two sites of different names, got {', '.join(self.sites)}.")
        if not n // 2 < self.quorum <= n:
            raise UserError(f"Expected a quorum above half of {n} sites, got {self.quorum}: else two sums could open.")
        if not 0 <= self.colluding < self.quorum:
            raise UserError(f"Expected 0 <= colluding < {self.quorum}, got {self.colluding}.")
        if self.sharing > 1 and 2 * self.quorum <= n + self.colluding:
            raise UserError(
                f"Expected a quorum above half of sites and colluding together ({n} + {self.colluding}), got "
                f"{self.quorum}: else a server that lies could open two sums."
            )
        if not (self.bound > 0 and self.grid > 0 and 0 < self.length <= MOST_NUMBERS and self.sigma >= 0):
            raise UserError(f"Expected bound and grid > 0, length in 1..{MOST_NUMBERS} and sigma >= 0.")
        if 0 < self.share_deviation < SMALLEST_SHARE:
            raise UserError(
                f"Expected a grid <= {self.grid * self.share_deviation / SMALLEST_SHARE:g} so that a noise share spans "
                f"{SMALLEST_SHARE:g} steps, got {self.grid:g}."
            )
        if n * (self.largest / self.grid + 40 * self.share_deviation) >= 2 ** (MODULUS_BITS - 2):
            raise UserError(
                f"The sum of {n} sites may pass 2^{MODULUS_BITS - 2} steps; choose a grid above {self.grid:g}."
            )

    @classmethod
    def fit(
        cls, sites: Sequence[str], secrecy: Secrecy, *, length: int, bound: float, sigma: float, label: str
    ) -> Rules:
        """Rules whose grid follows from public numbers: rounding adds at most a thousandth to a unit's norm, and a
        noise share spans at least eight steps."""
        if not (0 < bound < math.inf and 0 < length <= MOST_NUMBERS and 0 <= sigma < math.inf):
            raise UserError(
                f"Expected a bound > 0, a length in 1..{MOST_NUMBERS} and sigma >= 0 for the secure sum, got {bound}, "
                f"{length} and {sigma}."
            )
        grid = 1e-3 * bound / math.sqrt(length)
        if sigma > 0 and 0 < secrecy.quorum - secrecy.colluding <= len(sites):
            grid = min(grid, sigma * bound / math.sqrt(secrecy.quorum - secrecy.colluding) / 8.0)
        return cls(
            tuple(sites),
            secrecy.quorum,
            length,
            bound,
            sigma,
            grid=2.0 ** math.floor(math.log2(grid)),
            largest=MOST_UNITS * bound,
            colluding=secrecy.colluding,
            label=label,
        )

    @property
    def sharing(self) -> int:
        """How many sites' shares make the whole noise: the honest ones that are in any sum that opens."""
        return self.quorum - self.colluding

    @property
    def share_deviation(self) -> float:
        """The standard deviation of one site's noise share, in integer steps."""
        return self.sigma * self.rounded_bound / self.grid / math.sqrt(self.sharing)

    @property
    def rounded_bound(self) -> float:
        """One unit's norm after rounding: two sums that differ by it round up to a whole step apart a coordinate."""
        return self.bound + self.grid * math.sqrt(self.length)

    def cost(self, *, unit: str = "record", relation: Relation = "add-remove") -> Cost:
        """What the sum costs each unit, towards the server and the colluding sites; more sites only add noise."""
        return Cost.gaussian(self.sigma, unit=unit, relation=relation)


def noise_of(rules: Rules, present: int) -> float:
    """The noise multiplier that a sum over `present` sites holds towards server and colluding sites together."""
    honest = present - rules.colluding
    return rules.sigma * math.sqrt(honest / rules.sharing) if present >= rules.quorum else 0.0


def noise_in(rules: Rules, present: int) -> float:
    """The noise multiplier that is really in a sum over `present` sites, for whoever reads it without help."""
    return rules.sigma * math.sqrt(present / rules.sharing) * rules.rounded_bound / rules.bound


def naive_shortfall(rules: Rules, present: int) -> float:
    """What part of the promised noise multiplier would be missing had the noise been shared over all sites."""
    return 1.0 - math.sqrt(max(0, present - rules.colluding) / len(rules.sites))


def discrete_gaussian(deviation: float, count: int, stream: NoiseStream) -> Integers:
    """Integers from a discrete Gaussian, by rejection from a discrete Laplace (Canonne, Kamath, Steinke 2020)."""
    if deviation == 0:
        return np.zeros(count, dtype=np.int64)
    scale = math.floor(deviation) + 1
    found: list[Integers] = []
    missing = count
    while missing > 0:
        draw = 2 * missing + 16
        u, v, w = (stream.uniform(draw).numpy() for _ in range(3))
        magnitude = np.floor(-np.log(u) * scale).astype(np.int64)
        negative = v < 0.5
        kept = ~(negative & (magnitude == 0))  # zero would count twice
        accept = np.exp(-((magnitude - deviation**2 / scale) ** 2) / (2 * deviation**2))
        good = kept & (w < accept)
        values = np.where(negative, -magnitude, magnitude)[good][:missing]
        found.append(values)
        missing -= len(values)
    return np.concatenate(found)


def noisy_steps(rules: Rules, values: npt.ArrayLike, noise: NoiseStream) -> Integers:
    """A site's sum in integer steps, with its share of the noise."""
    return on_grid(rules, values) + discrete_gaussian(rules.share_deviation, rules.length, noise)


def on_grid(rules: Rules, values: npt.ArrayLike) -> Integers:
    """A site's sum in integer steps; what does not fit is refused, never clipped in silence."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if numbers.shape != (rules.length,) or not np.isfinite(numbers).all():
        raise UserError(f"Expected {rules.length} finite numbers for the secure sum, got {numbers.shape}.")
    if np.abs(numbers).max() > rules.largest:
        raise UserError(f"Expected numbers up to {rules.largest:g} for the secure sum.")  # the value itself is private
    return np.rint(numbers / rules.grid).astype(np.int64)
