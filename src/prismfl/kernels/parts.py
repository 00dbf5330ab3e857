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
MEMORY = 4 * 2**30
"""Bytes that a private step may take where nothing else is declared."""
STEP, WRITTEN, HELD = 64, 16, 12
"""Bytes of a step for each number of a network: of the step itself (sums and noise in double precision), of each record
whose gradient is written out, and of each record for every number that is held of it layer by layer."""


def at_a_time(shape: Sequence[int], most: int, *, learning: bool = False) -> int:
    """Records of this shape in a part: `most`, or as many as have NUMBERS numbers (LEARNT where a network learns)."""
    return max(1, min(most, (LEARNT if learning else NUMBERS) // max(1, math.prod(shape))))


def in_parts(x: torch.Tensor, most: int, *, learning: bool = False) -> tuple[torch.Tensor, ...]:
    """The records in parts, in their order; no copies are made. Without a record there is one empty part."""
    return torch.split(x, at_a_time(x.shape[1:], most, learning=learning))


def within(memory: int, numbers: int, each: int) -> int:
    """Records at a time in a step of `memory` bytes, on a network of so many numbers, at `each` bytes a record: one at
    least. What has no room for one is refused before a run begins (`step_bytes`)."""
    return max(1, (memory - STEP * numbers) // max(1, each))


def step_bytes(numbers: int) -> int:
    """The least memory that a private step on a network of so many numbers is sure to fit in: one record at a time."""
    return (STEP + WRITTEN) * numbers
