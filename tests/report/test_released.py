"""Noise over signal, from a release alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.report.released import ENDLESS, noise_to_signal, ratio
from prismfl.runs.directory import RunDirectory


def test_noise_over_signal_by_hand() -> None:
    """Rows of length 5 with four numbers and noise 1.5 each: noise 3, so the signal is 4."""
    sums = torch.tensor([[3.0, 4.0, 0.0, 0.0]] * 3)
    assert ratio(sums, 1.5) == pytest.approx(0.75)
    assert ratio(sums, 10.0) == ENDLESS, "no longer than its noise: nothing is left"


def test_it_finds_the_noise_that_was_added() -> None:
    made = torch.Generator().manual_seed(0)
    signal = torch.full((9, 2500), 0.1)  # a length of 5
    noisy = signal + 0.2 * torch.randn(signal.shape, generator=made)  # a length of 10
    assert ratio(noisy, 0.2) == pytest.approx(2.0, rel=0.15)


def test_nothing_kept_or_no_noise_is_no_figure(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {"method": "fedavg"}, {})
    assert noise_to_signal(run, 1.0) is None
    assert noise_to_signal(run, None) is None
