"""What a reader of own data has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.faults import Faults
from prismfl.data.schema import Schema
from prismfl.data.spec import Kind
from prismfl.errors import UserError

Bounds = tuple[float, float]


TABLES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
PACKED = (".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar")


def not_data(place: Path) -> UserError:
    """What to say of a path whose ending none of the readers knows."""
    if place.name.lower().endswith(PACKED):
        return UserError(f"{place} is a packed archive; unpack it, and give the folder as data (--data).")
    return UserError(f"Expected a folder, .csv, .tsv, .parquet or .npz as data (--data), got {place}.")


@dataclass(frozen=True, eq=False, repr=False)  # no record in a traceback
class Found:
    """What a reader found: features ready for training, labels, prints, and the optional canonical id columns.

    Features are float32, or bytes: pictures of 8 bits, which stand for [0, 1].
    """

    kind: Kind
    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    prints: list[bytes]
    unit: npt.NDArray[np.str_] | None = None
    natural: npt.NDArray[np.str_] | None = None
    schema: Schema | None = None
    notices: tuple[str, ...] = ()
    test: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = None
    faults: Faults = field(default_factory=Faults)
    more: tuple[list[bytes], ...] = ()  # other prints of the same records, by which the ledger finds them again
