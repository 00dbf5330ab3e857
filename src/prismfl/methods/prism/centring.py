"""Where a site's records lie, learnt for a small part of the budget, so that the rest tells what is special about them.

Private records lie away from the public images: what they have in common fills most of a clipped row and says nothing
about classes. So a site first asks for the noisy mean of its rows, and then measures each row from there, in units of
what is left of its length. The centre leaves with the statistics, in the same release. The server brings all sites back
to one centre. Both answers are Gaussian; their squared shares of the budget add up to one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from prismfl.privacy.mechanisms import from_triangle, triangle

COUNT = 0.1  # squared part of the count in the first answer
LONGEST = 0.95  # of a centre; a row is one at most
NARROWEST = 0.3  # unit in which rows are measured from the centre, at least

Coordinates = Callable[[torch.Tensor], torch.Tensor]


def with_count(u: torch.Tensor) -> torch.Tensor:
    """Rows of norm one at most for the first answer: the coordinates and a count."""
    return torch.cat([math.sqrt(1.0 - COUNT) * u, u.new_full((len(u), 1), math.sqrt(COUNT))], 1)


def centre_of(answer: torch.Tensor, *, sigma: float) -> torch.Tensor:
    """The centre that the first answer tells, the shorter the less sure it is."""
    whole = math.sqrt(1.0 - COUNT) * max(1.0, float(answer[-1]) / math.sqrt(COUNT))
    mean = answer[:-1] / whole
    length = float(mean.double().square().sum())
    if not length:
        return mean
    believed = max(0.0, 1.0 - (sigma / whole) ** 2 * len(mean) / length)
    return mean * min(believed, LONGEST / math.sqrt(length))


def unit_of(centre: torch.Tensor) -> float:
    """What is left of a row's length behind the centre."""
    return max(NARROWEST, math.sqrt(max(0.0, 1.0 - float(centre.double().square().sum()))))


def around(u: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """Rows measured from the centre, of norm one at most."""
    moved = (u - centre) / unit_of(centre)
    norms: torch.Tensor = moved.norm(dim=1, keepdim=True)
    return moved / norms.clamp_min(1.0)


def remembered(look: Coordinates) -> Coordinates:
    """The same coordinates, computed once: both answers look at the same records in the same blocks."""
    kept: dict[bytes, torch.Tensor] = {}

    def seen(x: torch.Tensor) -> torch.Tensor:
        name = hashlib.blake2b(x.detach().cpu().contiguous().numpy().data, digest_size=16).digest()
        if name not in kept:
            kept[name] = look(x)
        return kept[name]

    return seen


@dataclass(frozen=True, eq=False)
class Origin:
    """What all sites' rows are measured from, and in which unit."""

    centre: torch.Tensor
    unit: float


def together(
    releases: Sequence[Mapping[str, torch.Tensor]], *, rank: int, means: float, moment: float, count: float
) -> tuple[list[dict[str, torch.Tensor]], Origin]:
    """All releases as if measured from one centre in one unit; the factors are those of the rows' layout."""
    centres = [release["centre"] for release in releases]
    units = [unit_of(centre) for centre in centres]
    origin = Origin(torch.stack(centres).mean(0), math.sqrt(sum(unit**2 for unit in units) / len(units)))
    moved = []
    for release, centre, unit in zip(releases, centres, units):
        shift, ratio = (centre - origin.centre) / origin.unit, unit / origin.unit
        sums, second = release["sums"].clone(), _side(release["moment"])
        counts = sums[:, -1] / count
        raw = sums[:, :rank] / means * ratio
        sums[:, :rank] = means * (raw + counts[:, None] * shift)
        part, total = shift[:second], raw.sum(0)[:second]
        cross = torch.outer(total, part)
        product = from_triangle(release["moment"], second) / max(moment, 1e-12) * ratio**2
        product = product + cross + cross.T + float(counts.sum()) * torch.outer(part, part)
        moved.append({"sums": sums, "moment": triangle((moment * product).double()).float()})
    return moved, origin


def _side(entries: torch.Tensor) -> int:
    """The side of the matrix whose upper triangle this is."""
    return (math.isqrt(8 * entries.numel() + 1) - 1) // 2
