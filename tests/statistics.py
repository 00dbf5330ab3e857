"""Statistical assertions: alpha 1e-4, one re-run on a fresh seed, red only if both fail."""

from __future__ import annotations

from collections.abc import Callable

ALPHA = 1e-4


def accepts(p_value: Callable[[int], float], seeds: tuple[int, int] = (11, 12)) -> bool:
    """Whether the sample passes; `p_value(seed)` draws a fresh sample and tests it."""
    return any(p_value(seed) >= ALPHA for seed in seeds)
