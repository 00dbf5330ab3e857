"""How sure a score is: the interval of a score over held-out records that were drawn again, with replacement.

The draws are seeded, so the same records and scores always give the same interval. Nothing is computed record by
record: scores that follow from the confusion matrix are drawn as matrices, the others as sums with weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

RESAMPLES = 400
FEWEST = 100
LEVEL = 95.0
MOST_WORK = 25_000_000  # numbers that are sorted and summed for one interval
AT_ONCE = 8_000_000  # numbers in memory at a time


def generator() -> np.random.Generator:
    """The draws of every interval: the same each time."""
    return np.random.default_rng(0)


def interval(draws: Array) -> list[float] | None:
    """The middle 95 % of what a score was over the draws; None where most draws gave none."""
    found = draws[np.isfinite(draws)]
    if 2 * len(found) < len(draws) or not len(found):
        return None
    low, high = np.percentile(found, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return [round(float(low), 4), round(float(high), 4)]


def drawn_matrices(confusion: Array, resamples: int = RESAMPLES) -> Array:
    """Confusion matrices of records drawn again: to draw records is to draw their cells, in proportion."""
    cells = confusion.ravel()
    filled = np.flatnonzero(cells)
    total = int(cells.sum())
    drawn = np.zeros((resamples, cells.size), dtype=np.int64)
    drawn[:, filled] = generator().multinomial(total, cells[filled] / total, size=resamples)
    return drawn.reshape(resamples, *confusion.shape)


def drawn_weights(records: int, resamples: int = RESAMPLES) -> Iterator[Array]:
    """How often each record was drawn, a row a record and a column a draw, some draws at a time."""
    draw, step = generator(), max(1, AT_ONCE // max(1, records))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        chosen = draw.integers(0, records, size=(records, rows)) * rows + np.arange(rows)
        yield np.bincount(chosen.ravel(), minlength=rows * records).reshape(records, rows).astype(np.int32)


def affordable(work: int) -> int:
    """How many draws are made where one costs `work` numbers; 0 where too few would fit for an interval."""
    found = min(RESAMPLES, MOST_WORK // max(1, work))
    return found if found >= FEWEST else 0
