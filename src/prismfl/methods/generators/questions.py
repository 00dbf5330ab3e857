"""Which tables a site is asked for: from the declared columns, the declared sizes and the noise alone.

All tables leave in one release. A record counts once in each table, with the table's weight, so the weights of all
tables together are as long as the bound, and a table's noise is the release's noise over its weight.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from prismfl.errors import UserError
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Clique, Variables, cells

BOUND = 1.0
HAIR = 1.0 - 1e-12  # weights stay this side of the bound, whatever rounds
MOST_CELLS = 4_000_000  # numbers of a release
MOST_CLIQUES = 20_000
LABEL, PAIR, SINGLE = 2.0, 1.0, 1.0  # weights: pairs with the label, further cliques, single columns
DROWNED = 0.5  # noise of a table, in parts of all records, above which it is not worth asking
CLEAR = 0.3  # the same, of the finest bins that are worth having
FEWEST = 8  # bins by label where no two numbers are asked together
COARSEST = 4  # bins of two numbers that are worth asking together
BINS = (2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Questions:
    """The tables of one release: single columns in finer bins, by label; pairs with the label; further cliques."""

    variables: Variables
    finer: int
    singles: tuple[int, ...]
    cliques: tuple[Clique, ...]
    weights: tuple[float, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each table, singles first."""
        fine = [fine_places(self.variables, k, self.finer) * max(1, self.variables.labels) for k in self.singles]
        return (*fine, *(cells(self.variables.sizes, clique) for clique in self.cliques))

    def places(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The cell of each record in each table."""
        fine = self.variables.codes(x, y, finer=self.finer)[:, list(self.singles)]
        if self.variables.labels:
            fine = fine * self.variables.labels + y[:, None]
        codes = self.variables.codes(x, y).double()
        steps = torch.zeros(len(self.variables), len(self.cliques), dtype=torch.float64)
        for at, clique in enumerate(self.cliques):
            step = 1
            for k in reversed(clique):
                steps[k, at] = step
                step *= self.variables.sizes[k]
        return torch.cat([fine.double(), codes @ steps], 1)

    def tables(self, flat: torch.Tensor, noise: float) -> tuple[dict[int, Counts], dict[Clique, Counts]]:
        """The released numbers as tables of records, each with its noise: singles, and cliques."""
        parts = [
            Counts((part.double() / w), noise * BOUND / w)
            for part, w in zip(torch.split(flat, list(self.sizes)), self.weights)
        ]
        cut = len(self.singles)
        return dict(zip(self.singles, parts[:cut])), dict(zip(self.cliques, parts[cut:]))


def totals(
    flat: torch.Tensor, sizes: Sequence[int], weights: Sequence[float], noise: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """How many records each table of a release counts, and the standard deviation of the noise in that."""
    wide, own = torch.tensor(sizes, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    sums = torch.stack([part.sum() for part in torch.split(flat.double(), list(sizes))])
    return sums / own, noise * wide.sqrt() / own


@dataclass(frozen=True)
class Counts:
    """Noisy counts of a table's cells, in records, and the standard deviation of their noise."""

    counts: torch.Tensor
    noise: float


def fine_places(variables: Variables, k: int, finer: int) -> int:
    """Places of a single column: its bins are cut finer."""
    one = variables.sizes[k]
    bins = variables.columns[k].bins if k < len(variables.columns) else 0
    return one + bins * (finer - 1)


def design(variables: Variables, *, finer: int, given: Sequence[Clique] | None, pair_cells: int) -> Questions:
    """Single columns, all pairs with the label, and further cliques: those given, else all pairs of columns whose table
    has at most `pair_cells` cells. A column whose bins are not cut finer is told by its pair with the label."""
    label, columns = variables.label, range(len(variables.columns))
    singles = tuple(k for k in columns if label is None or fine_places(variables, k, finer) > variables.sizes[k])
    with_label: list[Clique] = [] if label is None else [(k, label) for k in columns]
    further: list[Clique]
    if given is None:
        _check_count(variables, pair_cells)
        further = [pair for pair in combinations(columns, 2) if cells(variables.sizes, pair) <= pair_cells]
    else:
        further = sorted({tuple(sorted(clique)) for clique in given} - set(with_label))
    weights = _weights(len(singles), len(with_label), len(further))
    return Questions(variables, finer, singles, (*with_label, *further), weights)


def worth_asking(columns: Columns, *, labels: int, noise: float, records: float) -> tuple[int, int]:
    """Bins of a number and the largest table of two columns, so that tables tell more than noise.

    `noise` is that of all sites' sum for a weight of 1, `records` how many they hold. Bins are as fine as tables of two
    numbers bear; where even coarse ones drown, there are none, and bins are as fine as pairs with the label bear, or
    FEWEST: noise does not grow with bins, and a tree finds nothing in two or three of them.
    """
    if not columns.numeric and not columns.pixels:
        return BINS[0], _largest(Variables.of(columns, bins=BINS[0], labels=labels), noise=noise, records=records)
    for bins in sorted((one for one in BINS if one >= COARSEST), reverse=True):
        variables = Variables.of(columns, bins=bins, labels=labels)
        most = _largest(variables, noise=noise, records=records)
        if bins * bins <= most and _error(variables, most, bins * bins, noise=noise) <= CLEAR * records:
            return bins, most
    error = _error(Variables.of(columns, bins=BINS[0], labels=labels), 0, max(1, labels), noise=noise)
    bins = max((one for one in BINS if error * one <= CLEAR * records), default=BINS[0])
    bins = max(bins, FEWEST) if labels > 1 else bins
    return bins, _largest(Variables.of(columns, bins=bins, labels=labels), noise=noise, records=records)


def _largest(variables: Variables, *, noise: float, records: float) -> int:
    """The most cells of a pair's table so that, all pairs up to it asked, it does not drown and there is room for all
    of them in a release; 0 if there are none."""
    pairs = sorted(cells(variables.sizes, pair) for pair in combinations(range(len(variables.columns)), 2))
    for most in sorted(set(pairs), reverse=True):
        asked = pairs[: bisect_right(pairs, most)]
        room = sum(asked) <= MOST_CELLS // 2 and len(asked) <= MOST_CLIQUES // 2
        if room and _error(variables, most, most, noise=noise) <= DROWNED * records:
            return most
    return 0


def _error(variables: Variables, most: int, size: int, *, noise: float) -> float:
    """Noise in all cells of a table of this size together, in records, if all pairs of up to `most` cells are asked."""
    found = design(variables, finer=2, given=None, pair_cells=most)
    return math.sqrt(2.0 / math.pi) * noise / found.weights[-1] * size


def pairs_up_to(variables: Variables, most: int) -> int:
    """How many pairs of columns have a table of at most so many cells."""
    sizes = sorted(one.places for one in variables.columns)
    return sum(min(bisect_right(sizes, most // size), k) for k, size in enumerate(sizes))


def _check_count(variables: Variables, pair_cells: int) -> None:
    """Refuse more pairs than a release may have before they are written down: 10,000 columns have 50 million."""
    pairs, columns = pairs_up_to(variables, pair_cells), len(variables.columns)
    if pairs > MOST_CLIQUES:
        raise UserError(
            f"Expected at most {MOST_CLIQUES:,} tables, got {pairs:,} pairs of {columns:,} columns with pair_cells "
            f"{pair_cells:,}; lower it, or name the pairs (cliques)."
        )


def check_size(found: Questions, names: Sequence[str]) -> None:
    """Refuse, from public numbers alone, more numbers than a release may have."""
    total = sum(found.sizes)
    tables = f"{MOST_CELLS:,} cells in {MOST_CLIQUES:,} tables"
    if total > MOST_CELLS or len(found.cliques) > MOST_CLIQUES:
        at = max(range(len(found.cliques)), key=lambda i: cells(found.variables.sizes, found.cliques[i]), default=0)
        clique = found.cliques[at] if found.cliques else ()
        words = " x ".join(f"{names[k]} ({found.variables.sizes[k]})" for k in clique)
        raise UserError(
            f"Expected at most {tables}, got {total:,} in {len(found.cliques):,}; the largest is "
            f" {words}; use fewer bins, merge categories of these columns, or name fewer cliques."
        )


def _weights(singles: int, with_label: int, further: int) -> tuple[float, ...]:
    plain = [SINGLE] * singles + [LABEL] * with_label + [PAIR] * further
    length = math.sqrt(math.fsum(w * w for w in plain))
    return tuple(BOUND * HAIR * w / length for w in plain)
