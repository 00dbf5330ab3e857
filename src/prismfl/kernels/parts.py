"""How many records are looked at at a time, so that memory follows from a part of them and not from their number.

The count follows from a record's public shape alone. Small pictures go by hundreds as ever; of large ones there are
fewer at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

NUMBERS = 500 * 3 * 64 * 64  # in the pictures of a part; the maps of a network are some tens of times as large
LEARNT = 128 * 3 * 64 * 64  # the same where a gradient is wanted and all maps are kept for it


def at_a_time(shape: Sequence[int], most: int, *, learning: bool = False) -> int:
    """Records of this shape in a part: `most`, or as many as have NUMBERS numbers (LEARNT where a network learns)."""
    return max(1, min(most, (LEARNT if learning else NUMBERS) // max(1, math.prod(shape))))


def in_parts(x: torch.Tensor, most: int, *, learning: bool = False) -> tuple[torch.Tensor, ...]:
    """The records in parts, in their order; no copies are made. Without a record there is one empty part."""
    return torch.split(x, at_a_time(x.shape[1:], most, learning=learning))
