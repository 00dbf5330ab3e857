"""Neighbouring data and what the door adds noise to: for tests that play one record in and out."""

from __future__ import annotations

import pytest
import torch

from prismfl.core.records import Records
from prismfl.privacy import mechanisms

CASES = ["first record", "middle record", "last record", "only record of a class", "a class that stays empty"]
Seen = list[tuple[torch.Tensor, float, float]]  # what was summed, its bound, the noise


def neighbours(case: str, records: Records) -> tuple[Records, Records]:
    """`records`, made into the case, with and without the one that it names (the last, if it names none)."""
    row = {"first record": 0, "middle record": len(records) // 2}.get(case, len(records) - 1)
    gone = torch.arange(len(records)) == row
    if case == "only record of a class":
        records = Records(records.x, torch.where(gone, 2, 0))
    if case == "a class that stays empty":
        records = Records(records.x, records.y % 2)
    if case == "not finite":
        records = Records(torch.where(gone[:, None, None, None], torch.nan, records.x), records.y)
    return records, records.take(torch.nonzero(~gone).flatten())


def watch_noise(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every sum from now on, before its noise."""
    seen: Seen = []
    real = mechanisms.add_noise

    def spying(
        total: torch.Tensor, *, bound: float, sigma: float, stream: object, kind: str = "gaussian"
    ) -> torch.Tensor:
        seen.append((total.clone(), bound, sigma))
        return real(total, bound=bound, sigma=sigma, stream=stream, kind=kind)  # type: ignore[arg-type]

    monkeypatch.setattr(mechanisms, "add_noise", spying)
    return seen
