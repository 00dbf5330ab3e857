"""What the releases of a run say about themselves: how long their noise is against what they hold. Costs nothing."""

from __future__ import annotations

import math
from statistics import median

import torch

from prismfl.core.payloads import Statistics
from prismfl.errors import PrismError
from prismfl.runs.directory import RunDirectory

ENDLESS = 100.0  # where no signal is left to divide by


def noise_to_signal(run: RunDirectory, sigma: float | None) -> float | None:
    """The median over sites of the noise in a class's released sum over the sum itself, from the last kept releases.

    None where no statistics were released with noise, or none were kept.
    """
    if not sigma:
        return None
    found: dict[str, float] = {}
    for message in run.messages():
        if message.direction != "up" or message.file is None:
            continue
        try:
            payloads = run.payloads(message).values()
        except (PrismError, FileNotFoundError):
            continue
        for payload in payloads:
            if isinstance(payload, Statistics) and "sums" in payload.tensors and payload.tensors["sums"].ndim == 2:
                spent = float(payload.tensors.get("spent", torch.ones(1)).flatten()[0])
                found[message.site] = ratio(payload.tensors["sums"], sigma / math.sqrt(max(spent, 1e-9)))
    return round(median(found.values()), 3) if found else None


def ratio(sums: torch.Tensor, sigma: float) -> float:
    """Noise over signal of the median row: a row's square is that of its signal and, on average, that of its noise."""
    noise = sigma * math.sqrt(sums.shape[1])
    signals = [math.sqrt(max(0.0, float(row.double().norm()) ** 2 - noise**2)) for row in sums]
    signal = median(signals)
    return min(ENDLESS, noise / signal) if signal > 0 else ENDLESS
