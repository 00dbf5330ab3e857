"""One site of several cannot decide: how what the sites sent is combined, and how large an honest release can be.

The limits follow from public numbers alone. A limit that refuses is one that an honest site passes with probability at
least 1 - 1e-12, whatever records it holds; what is merely large is not refused, it is given less weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch

from prismfl.core.method import Inbox, Items
from prismfl.core.task import Task
from prismfl.kernels.loss import Params
from prismfl.nets.training import Mean, average

Aggregate = Literal["mean", "clipped-mean", "median", "trimmed-mean"]
HOW = "how sites are combined; clipped-mean: none counts for more than twice the median site"
TIMES_MEDIAN = 2.0
SLACK = 2.0  # the declared number of records is rounded: a site may hold twice as many and keep its full weight
CLEAR = 4.0  # standard deviations of noise that a weight is never cut for
TAIL = 1e-12
LOG_TAIL = math.log(1.0 / TAIL)
SURE = math.sqrt(2.0 * LOG_TAIL)  # standard deviations that one normal draw stays within, but for TAIL


def combine(rule: Aggregate, inbox: Inbox, item: str, *, base: Params | None = None) -> Params:
    """The sites' tensors as one. Updates are measured from `base`, gradients (no base) from zero.

    `clipped-mean` shortens updates that are over twice as long as the median one; where there are none, it is the mean
    bit for bit. Median and trimmed mean are taken number by number.
    """
    sites = sorted(inbox)
    if rule in ("median", "trimmed-mean"):
        rows = [inbox[site][item].tensors for site in sites]
        return {k: centre(rule, torch.stack([r[k].double() for r in rows])).to(rows[0][k].dtype) for k in rows[0]}
    factors = dict.fromkeys(sites, 1.0)
    if rule == "clipped-mean":
        factors = clip_factors({site: length(inbox[site][item].tensors, base) for site in sites})
    return average(_shortened(inbox[site][item].tensors, base, factors[site]) for site in sites)


class Combining:
    """`combine` for releases that come one by one, in the order of their sites' names.

    Of a clipped mean nobody can say before the end who is clipped. As a rule nobody is, and the mean is right; else
    the releases are needed once more.
    """

    def __init__(self, rule: Literal["mean", "clipped-mean"], item: str, *, base: Params | None = None) -> None:
        self._rule, self._item, self._base = rule, item, base
        self._mean, self._lengths = Mean(), list[float]()

    def add(self, items: Items) -> None:
        """One release more."""
        tensors = items[self._item].tensors
        if self._rule == "clipped-mean":
            self._lengths.append(length(tensors, self._base))
        self._mean.add(tensors)

    def value(self) -> Params | None:
        """What `combine` gives; None where a release is to be shortened."""
        lengths = {str(place): size for place, size in enumerate(self._lengths)}
        shortened = bool(lengths) and any(factor != 1.0 for factor in clip_factors(lengths).values())
        return None if shortened else self._mean.value()


def clip_factors(lengths: Mapping[str, float]) -> dict[str, float]:
    """What brings each length under twice the median. Of two sites neither can tell on the other: none is clipped."""
    limit = TIMES_MEDIAN * upper_median(list(lengths.values()))
    return {site: 1.0 if size <= limit else limit / size for site, size in lengths.items()}


def upper_median(values: Sequence[float]) -> float:
    """The middle value, the larger of two: a site that sends next to nothing does not stop the others."""
    return sorted(values)[len(values) // 2]


def centre(rule: Aggregate, rows: torch.Tensor) -> torch.Tensor:
    """The middle of the rows, number by number. Fewer than three have no middle: it is their mean."""
    count = len(rows)
    if count < 3:
        return rows.mean(0)
    cut = (count - 1) // 2 if rule == "median" else max(1, count // 5)
    return rows.sort(0).values[cut : count - cut].mean(0)


def size(tensors: Params) -> int:
    """How many numbers there are in all."""
    return sum(tensor.numel() for tensor in tensors.values())


def length(tensors: Params, base: Params | None = None) -> float:
    """The norm of all numbers together, in double precision: 3e38 has a square there."""
    total = 0.0
    for name, tensor in tensors.items():
        moved = tensor.double() if base is None else tensor.double() - base[name].double()
        total += float(moved.square().sum())
    return math.sqrt(total)


def _shortened(tensors: Params, base: Params | None, factor: float) -> Params:
    if factor == 1.0:
        return tensors
    if base is None:
        return {k: (factor * v.double()).to(v.dtype) for k, v in tensors.items()}
    return {k: (base[k].double() + factor * (v.double() - base[k].double())).to(v.dtype) for k, v in tensors.items()}


# Weights of sites whose releases are sums over records


def site_weights(counts: torch.Tensor, *, records: float, noise: float) -> torch.Tensor:
    """A factor per site on all its sums: none counts for more than twice the declared records.

    `counts` are noisy class sizes (sites x classes) with standard deviation `noise`. A site whose sizes come to less
    than nothing by more than noise does not count.
    """
    total, doubt = counts.double().sum(1), noise * math.sqrt(counts.shape[1])
    most = SLACK * records + CLEAR * doubt
    factors = (most / total.clamp(min=1e-9)).clamp(max=1.0)
    return torch.where(total < -CLEAR * doubt, 0.0, factors).to(counts.dtype)


def class_weights(held: torch.Tensor, *, records: float, noise: float) -> torch.Tensor:
    """A factor per site and class, so that in a class that others hold too no site outweighs all of them together.

    Up to twice an ordinary class (declared records over classes) and noise is never cut, nor is the only holder.
    """
    held = held.clamp(min=0.0)
    others = held.sum(0, keepdim=True) - held
    most = others.clamp(min=SLACK * records / held.shape[1] + CLEAR * noise)
    cut = (others > 0) & (held > most)
    return torch.where(cut, most / held.clamp(min=1e-9), 1.0).to(held.dtype)


def capped(counts: torch.Tensor, *, records: float, noise: float) -> torch.Tensor:
    """The factor of each site and class: both limits together."""
    sites = site_weights(counts, records=records, noise=noise)[:, None]
    return sites * class_weights(counts * sites, records=records, noise=noise)


# What an honest release can be


def most_held(task: Task) -> float:
    """More records than all sites declare together no site can have. One that is alone has nobody to deceive."""
    return max(SLACK, len(task.sites)) * float(task.records) if len(task.sites) > 1 else math.inf


def most_drawn(expected: float) -> float:
    """A Poisson sample of this expected size is no larger, but for TAIL."""
    return expected + math.sqrt(2.0 * expected * LOG_TAIL) + LOG_TAIL


def noise_norm(size: int, scale: float, kind: str = "gaussian") -> float:
    """The norm of `size` noise draws is no larger, but for TAIL; with room for the grid they are rounded to."""
    if kind == "laplace":
        return 1.001 * scale * (math.sqrt(2.0 * size) + 2.0 * (LOG_TAIL + 1.1))
    return 1.001 * scale * (math.sqrt(size) + SURE)


def most_moved(
    task: Task, size: int, *, batch: float, clip: float, sigma: float, steps: int = 1, kind: str = "gaussian"
) -> float:
    """The norm of the sum of `steps` noisy gradients of `size` numbers, as the door makes them."""
    if not math.isfinite(clip):
        return math.inf
    rate, held = task.rate(batch), most_held(task)
    drawn = min(steps * held, most_drawn(steps * rate * held))
    noise = math.sqrt(steps) * noise_norm(size, sigma * clip, kind)
    return (1.001 * clip * drawn + noise) / (rate * task.records)


def count_fault(counts: torch.Tensor, task: Task, noise: float) -> str | None:
    """Why these noisy class sizes cannot be honest, if so."""
    found, classes = counts.double(), counts.numel()
    most = most_held(task) + math.sqrt(classes) * noise_norm(classes, noise) + 1e-3
    if float(found.clamp(min=0.0).sum()) > most:
        return f"it counts {float(found.sum()):.3g} records, where {task.records} a site are declared"
    if float(found.min()) < -noise_norm(classes, noise) - 1e-3:
        return f"it counts {float(found.min()):.3g} records of a class"
    return None


def agreed(totals: torch.Tensor, doubts: torch.Tensor) -> tuple[float, float]:
    """What several noisy counts of the same records say together, each by its noise, and the noise of that."""
    weights = doubts.double().clamp(min=1e-9).pow(-2)
    return float((weights * totals.double()).sum() / weights.sum()), float(weights.sum().pow(-0.5))


def totals_fault(totals: torch.Tensor, doubts: torch.Tensor) -> str | None:
    """Why tables with these totals, of these standard deviations, cannot be of the same records, if so.

    Each table counts every record once. Else a site could hide one table that outweighs all others' among many that
    count next to nothing.
    """
    held, _ = agreed(totals, doubts)
    apart = (totals.double() - held).abs() - 1.001 * SURE * doubts.double() - 1e-3 - 1e-5 * abs(held)
    worst = int(apart.argmax())
    if float(apart[worst]) <= 0:
        return None
    return f"one of its tables counts {float(totals[worst]):.3g} records, all together {held:.3g}"


def beyond(tensors: Params, most: float) -> str | None:
    """Why these weights of a network cannot come out of its training, if so."""
    for name, tensor in tensors.items():
        if tensor.numel() and float(tensor.double().abs().max()) > most:
            return f"'{name}' has numbers beyond {most:.3g}, which its training cannot reach"
    return None


def first_fault(*checks: Callable[[], str | None]) -> str | None:
    """The first of the checks that finds a fault says why."""
    return next((why for check in checks if (why := check()) is not None), None)
