"""What becomes of a record that cannot be read in the declared domain: for people an error, on a site a gap.

An exception is an exact answer about one record, and so is a column that is read in another way because of one cell. So
on a site such a record is left out, by its own content, whoever lies beside it; whoever owns the data sees where.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismfl.errors import CellError

SHOWN = 1000


@dataclass(frozen=True)
class BadRecord:
    """A record that was left out: which one (counted from 1), what is wrong and where in it. Never a cell's content."""

    row: int
    what: str
    place: str = ""


class Faults:
    """The records of one file that cannot be read. Without `lenient` the first of them is an error."""

    def __init__(self, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.rows: set[int] = set()
        self.shown: list[BadRecord] = []

    def note(self, row: int, what: str, error: CellError, *, place: str = "") -> None:
        """Record `row`, counted from 0, is none."""
        if not self.lenient:
            raise error
        if row not in self.rows and len(self.shown) < SHOWN:
            self.shown.append(BadRecord(row + 1, what, place))
        self.rows.add(row)

    def kept(self, count: int) -> npt.NDArray[np.int64]:
        """The rows of so many that are left, in their order."""
        mask = np.ones(count, dtype=bool)
        mask[list(self.rows)] = False
        return np.flatnonzero(mask)
