"""How well an attack did, and what differential privacy allows it at most. A score alone is told the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

Found = dict[str, Any]


@dataclass(frozen=True)
class Sheet:
    """Pictures in [0, 1], so many in a row."""

    images: torch.Tensor = field(repr=False)
    columns: int
    scale: int = 2


@dataclass(frozen=True)
class Scored:
    """`found` is the JSON form of a result."""

    found: Found
    sheet: Sheet | None = None
