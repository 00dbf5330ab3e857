"""What a reader of own data has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.faults import Faults
from prismfl.data.schema import Schema
from prismfl.data.spec import Kind

Bounds = tuple[float, float]


TABLES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")


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
