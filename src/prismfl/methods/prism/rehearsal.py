"""What PRISM's rehearsals share: the stage they play on, one played release, and how a rank is picked from scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from prismfl.methods.prism import centring, statistics
from prismfl.methods.prism.encoder import PublicFeatures
from prismfl.methods.prism.head import HeadConfig
from prismfl.privacy.mechanisms import triangle

RANKS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
MEANS, SECOND = 0.6, 0.35  # squared parts of the means and of the second moment
APART = 4.5  # how far two classes lie apart, in standard deviations within them, over all directions
AWAY = 0.7  # how far all classes lie from the public images, in standard deviations of these in each direction
FALL = 0.3  # power by which the shift of a class falls off along the directions
SHOWN, HELD, MOST = 4000, 1500, 10_000  # public images, held back ones, records of the rehearsed federation
CENTRE = 0.1  # squared share of the budget that a site's own centre is worth
NEARLY = 3.0  # points by which a rank may be worse than the best
DROWNED = 7.0  # points above chance below which nothing was learnt
MEANS_ALONE = {"share_means": 0.95, "share_covariance": 0.0, "covariance": 0}
HIDDEN = 0.5  # noise of a second moment, in variances of a direction, beyond which it is not asked for
CLEAR = 0.5  # noise over signal that the random networks' class means may have


@dataclass(frozen=True, eq=False)
class Stage:
    """What a rehearsal plays with: public images as rows along many public directions, before any clip."""

    features: PublicFeatures
    rows: torch.Tensor
    sites: int
    records: int
    classes: int
    sigma: float

    @property
    def count(self) -> int:
        """How many records are played with."""
        return min(MOST, max(200, self.sites * self.records))

    @property
    def scale(self) -> float:
        """Records that are played with for each of the run: the noise is made smaller alike."""
        return self.count / (self.sites * self.records)


def pick(scores: Mapping[int, float], *, chance: float = 0.0) -> int:
    """The middle rank of those that are nearly as good as the best: on either side of them accuracy falls.

    Where none is clearly above chance, the smallest there is.
    """
    best = max(scores.values())
    if best < chance + DROWNED:
        return min(scores)
    good = [rank for rank, score in scores.items() if score >= best - NEARLY]
    middle = math.sqrt(min(good) * max(good))
    return min(scores, key=lambda rank: abs(math.log(rank / middle)))


def accuracy(model: Mapping[str, torch.Tensor], u: torch.Tensor, y: torch.Tensor) -> float:
    """How many rows (percent) a linear model puts into their class."""
    return 100.0 * float(((u @ model["weight"] + model["bias"]).argmax(1) == y).float().mean())


def played_release(
    cfg: HeadConfig,
    layout: statistics.RowLayout,
    u: torch.Tensor,
    y: torch.Tensor,
    *,
    classes: int,
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """One site's sums and second moment with noise; the networks' part is left empty."""
    more = {}
    if cfg.centring:
        sigma, exact = cfg.noise / math.sqrt(cfg.centring), centring.with_count(u).sum(0)
        more["centre"] = centring.centre_of(exact + sigma * torch.randn(exact.shape, generator=generator), sigma=sigma)
        u = centring.around(u, more["centre"])
    members = torch.nn.functional.one_hot(y, classes).float()
    sums = torch.zeros(classes, layout.width)
    sums[:, : layout.rank] = layout.means * members.T @ u
    sums[:, -1] = layout.count * members.sum(0)
    lead = u[:, : layout.second]
    moment = triangle(layout.moment * (lead.T @ lead).double()).float()
    noisy = [part + cfg.answer_noise * torch.randn(part.shape, generator=generator) for part in (sums, moment)]
    return {**more, "sums": noisy[0], "moment": noisy[1]}
