"""A DP copula for tables: noisy marginals of each class, and noisy products of the columns' positions.

A column's position is one number: the value itself, or the place of a category in its declared order. What leaves are
sums, so the releases of several sites can be added before anything non-linear is done with their noise (`merge`).
`latent.py` turns sums into records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from prismfl.core.door import PrivateRecords, Rows
from prismfl.kernels.loss import Params
from prismfl.methods.generators.moments import Queries, with_labels
from prismfl.nets.columns import Columns

# Public guesses, by type, of a column's standard deviation: they weigh the columns in a row against each other.
NUMBER, CHOICE = 0.25, 0.7
# Of a typical squared norm around the centre: numbers, flags of missing ones, choices, binaries.
AROUND = {"n": 0.09, "p": 0.09, "f": 0.09, "c": 0.6, "b": 0.8}
COUNTED = 0.15  # squared weight of the count in a row of sums, in parts of the rest
PRODUCTS = 0.5  # clipping bound of a row of products, in parts of the number of columns
LEAST_COUNT = 2.0
LEAST_THERE = 0.05


@dataclass(frozen=True)
class Layout:
    """The columns in their order: type letter, first feature, places; and the map from features to positions.

    The flag of a number that may be missing is a column "f" of its own, behind the number's "n".
    """

    columns: Columns
    kinds: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, columns: Columns) -> Layout:
        """The layout of declared columns, in the order of their features."""
        found = [("n", i, 1) for i in columns.numeric] + [("b", i, 1) for i in columns.binary]
        found += [("f", i, 1) for i in columns.flags]
        found += [("p", i, 1) for i in columns.pixels] + [("c", first, width) for first, width in columns.blocks]
        return cls(columns, tuple(sorted(found, key=lambda kind: kind[1])))

    def __len__(self) -> int:
        return len(self.kinds)

    def positions(self) -> torch.Tensor:
        """(features, columns): a record times this gives its positions."""
        out = torch.zeros(self.columns.width, len(self), dtype=torch.float64)
        for k, (kind, first, width) in enumerate(self.kinds):
            out[first : first + width, k] = places(width) if kind == "c" else 1.0
        return out

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """Numbers that may be missing and their flags, by the places of both among the columns."""
        place = {first: k for k, (_, first, _) in enumerate(self.kinds)}
        return tuple((place[number], place[flag]) for number, flag in self.columns.missing)

    def there(self, at: torch.Tensor) -> torch.Tensor:
        """(records or means, columns): how far each column has a value, from positions; 1 where it cannot miss."""
        out = torch.ones_like(at)
        for number, flag in self.missing:
            out[..., number] = (1.0 - at[..., flag]).clamp(0.0, 1.0)
        return out

    def means(self, mean: torch.Tensor) -> torch.Tensor:
        """Mean positions, those of numbers that may be missing over the records that have them."""
        found: torch.Tensor = (mean / self.there(mean).clamp(min=LEAST_THERE)).clamp(-1.0, 1.0)
        return torch.where(self.there(torch.ones_like(mean)) < 1.0, found, mean)

    def together(self, mean: torch.Tensor) -> torch.Tensor:
        """The part of records that have both columns' values, for each pair, as if they were missing independently."""
        there = self.there(mean).clamp(min=LEAST_THERE)
        return torch.outer(there, there).fill_diagonal_(0.0) + torch.diag(there)

    def scale(self) -> torch.Tensor:
        """The public spread of each column."""
        return torch.tensor([CHOICE if kind in "bc" else NUMBER for kind, _, _ in self.kinds], dtype=torch.float64)

    def feature_scale(self) -> torch.Tensor:
        """The public spread of each feature: that of its column."""
        return self.scale().repeat_interleave(torch.tensor([width for _, _, width in self.kinds]))

    def around(self, *, scaled: bool) -> float:
        """A public guess of a record's squared distance from the centre, in raw features or in units of the scale."""
        guess = torch.tensor([AROUND[kind] for kind, _, _ in self.kinds], dtype=torch.float64)
        return float((guess / self.scale().square() if scaled else guess).sum())

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what a fit releases of one class."""
        k = len(self)
        sizes = {"count": 1, "sums": self.columns.width, "weight": 1, "centre": k, "products": k * (k + 1) // 2}
        out: dict[str, tuple[int, ...]] = {"noise": (2,)}
        return out | {name: (size,) for name, size in sizes.items()}


@dataclass(frozen=True)
class Look:
    """A first noisy look at all records of a site: class sizes, the centre, and how far records lie from it.

    `error` is the standard error of a feature's centre, `doubt` that of a class size, `spread` a factor on the public
    guess of the squared distance.
    """

    sizes: torch.Tensor
    centre: torch.Tensor
    error: float
    doubt: float
    spread: float


def places(width: int) -> torch.Tensor:
    """Positions of the categories of a column, in their declared order."""
    return torch.linspace(-1.0, 1.0, width, dtype=torch.float64) if width > 1 else torch.zeros(1, dtype=torch.float64)


def look(door: PrivateRecords, layout: Layout, *, sigma: float) -> Look:
    """One query of all records. Clipping needs a centre, and a small class alone cannot tell its own."""
    columns, typical = layout.columns, layout.columns.squared_norm()
    weight, half = math.sqrt(0.2 * typical), math.sqrt(0.1 / typical)

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1).double()
        norm = flat.square().sum(1, keepdim=True)
        return torch.cat([weight * with_labels(flat[:, :0], y, door.classes), flat, half * norm], 1)

    bound = math.sqrt(1.3 * typical)
    answer = door.noisy_sum(rows, bound=bound, sigma=sigma).double()
    error = bound * sigma / door.declared
    centre = (answer[door.classes : -1] / door.declared).clamp(-1.0, 1.0)
    known = float(centre.square().sum()) - columns.width * error**2
    distance = min(max(float(answer[-1]) / half / door.declared - known, 0.03 * typical), typical)
    spread = min(max(distance / layout.around(scaled=False), 0.3), 2.0)
    sizes = (answer[: door.classes] / weight).clamp(min=0.0).to(torch.float32)
    return Look(sizes, centre, error, bound * sigma / weight, spread)


def fit(
    door: PrivateRecords, layout: Layout, *, queries: Queries, start: int, seen: Look | None, labels: int = 0
) -> Params:
    """Sums of one class: `start` of the queries go to the marginals, at least one of the others to the products."""
    first = min(max(1, start), max(1, queries.times - 1))
    doubt = math.hypot(queries.doubt if seen is None else seen.doubt, 0.02 * door.declared)
    centre, radius = _centre(layout, seen)
    scale, moves = layout.feature_scale(), layout.positions()

    def near(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (with_labels(x, y, labels).double() - centre) / scale

    counted = math.sqrt(COUNTED * radius)
    asked = replace(queries, times=first)
    total, noise = _ask(door, near, bound=math.sqrt((1.2 + COUNTED) * radius), ones=counted, queries=asked)
    count = _weighed(float(total[0]) / counted, noise / counted, door.declared, doubt)
    moved = total[1:] * scale
    middle = layout.means(centre @ moves + _beyond_noise(layout, moved @ moves / count, noise / count))
    products, weight, rough = _products(
        door, layout, middle, queries=replace(queries, times=queries.times - first), count=(count, doubt), labels=labels
    )
    made = {
        "count": torch.tensor([count]),
        "sums": moved + count * centre,
        "weight": torch.tensor([weight]),
        "centre": middle / layout.scale(),
        "products": products,
        "noise": torch.tensor([noise, rough]),
    }
    return {name: tensor.to(torch.float32) for name, tensor in made.items()}


def merge(layout: Layout, released: Sequence[Params]) -> Params:
    """The sums of one class at several sites as if they had been asked at one, about their common mean."""
    rows = [{name: tensor.double() for name, tensor in one.items()} for one in released]
    total = {name: torch.stack([row[name] for row in rows]).sum(0) for name in ("count", "sums", "weight", "products")}
    count = total["count"].clamp(min=LEAST_COUNT)
    means = total["sums"] / count @ layout.positions()
    mean, both = layout.means(means) / layout.scale(), layout.together(means)
    products = symmetric(total["products"], len(layout))
    for row in rows:
        gap = mean - row["centre"]
        products = products - row["weight"] * both * torch.outer(gap, gap)
    noise = torch.stack([row["noise"] for row in rows]).square().sum(0).sqrt()
    upper = torch.triu_indices(len(layout), len(layout))
    return total | {"centre": mean, "products": products[upper[0], upper[1]], "noise": noise}


def symmetric(flat: torch.Tensor, size: int) -> torch.Tensor:
    """The matrix of an upper triangle, its entries as they are (`mechanisms.triangle` weighs them to keep the norm)."""
    upper = torch.triu_indices(size, size)
    out = torch.zeros(size, size, dtype=torch.float64)
    out[upper[0], upper[1]] = flat.double()
    return out + out.T - torch.diag(out.diagonal())


def _centre(layout: Layout, seen: Look | None) -> tuple[torch.Tensor, float]:
    """Where rows are centred, and their typical squared length in units of the scale."""
    scale = layout.feature_scale()
    if seen is None:
        away = [1.0 / CHOICE**2 if kind in "bc" else 0.35 / NUMBER**2 for kind, _, _ in layout.kinds]
        return torch.zeros(layout.columns.width, dtype=torch.float64), sum(away)
    wrong = float((seen.error / scale).square().sum())
    return seen.centre, seen.spread * layout.around(scaled=True) + wrong


def _ask(
    door: PrivateRecords, near: Rows, *, bound: float, ones: float, queries: Queries
) -> tuple[torch.Tensor, float]:
    """The sum over all records of rows that begin with `ones`, and its noise."""

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.full((len(x), 1), ones, dtype=torch.float64), near(x, y)], 1)

    total = torch.zeros((), dtype=torch.float64)
    for _ in range(queries.times):
        total = total + door.noisy_sum(rows, bound=bound, sigma=queries.sigma, batch=queries.batch(door)).double()
    return total / (queries.rate * queries.times), bound * queries.sigma / (queries.rate * math.sqrt(queries.times))


def _weighed(found: float, noise: float, declared: float, doubt: float) -> float:
    """A count from a noisy answer and from an earlier one, each by its precision."""
    trust = doubt**2 / max(doubt**2 + noise**2, 1e-12)
    return max(trust * found + (1 - trust) * declared, LEAST_COUNT)


def _beyond_noise(layout: Layout, gap: torch.Tensor, error: float) -> torch.Tensor:
    """The part of the way from the centre to the class's own mean that is more than noise."""
    noise = error**2 * float((layout.feature_scale()[:, None] * layout.positions()).square().sum())
    return gap * max(0.0, 1.0 - noise / max(float(gap.square().sum()), 1e-9))


def _products(
    door: PrivateRecords,
    layout: Layout,
    middle: torch.Tensor,
    *,
    queries: Queries,
    count: tuple[float, float],
    labels: int,
) -> tuple[torch.Tensor, float, float]:
    """Noisy products of positions around `middle`: the upper triangle, its weight (a count) and its noise."""
    size, scale, moves = len(layout), layout.scale(), layout.positions()
    upper = torch.triu_indices(size, size)
    if not queries.times:
        return torch.eye(size)[upper[0], upper[1]] * count[0], count[0], count[0]

    def near(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = with_labels(x, y, labels).double() @ moves
        at = (found - middle) / scale * layout.there(found)  # a missing number lies at the mean
        return at[:, upper[0]] * at[:, upper[1]]

    bound = PRODUCTS * size
    ones = math.sqrt(0.1) * bound
    total, noise = _ask(door, near, bound=math.sqrt(1.1) * bound, ones=ones, queries=queries)
    weight = _weighed(float(total[0]) / ones, noise / ones, count[0], math.hypot(count[1], 0.05 * count[0]))
    return total[1:], weight, noise
