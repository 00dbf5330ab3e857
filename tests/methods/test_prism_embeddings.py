"""Synthetic embeddings: drawn from the released Gaussians."""

from __future__ import annotations

import torch

from prismfl.methods.prism.embeddings import embed
from prismfl.methods.prism.head import Pooled
from prismfl.rng import Key


def pooled(within: torch.Tensor, means: torch.Tensor) -> Pooled:
    count = torch.full((len(means),), 100.0)
    nothing = torch.zeros(0)
    return Pooled(count, means, nothing, within, nothing, 0.0, 0.0, torch.zeros(len(means)))


def test_rows_have_the_released_means_and_covariance() -> None:
    means, within = 0.3 * torch.eye(4)[:3], torch.diag(torch.tensor([0.01, 0.002, 0.005, 0.001]))
    rows, labels = embed(pooled(within, means), 20_000, Key.seed(0))
    assert labels.bincount().tolist() == [20_000] * 3
    for c in range(3):
        own = rows[labels == c]
        assert torch.allclose(own.mean(0), means[c], atol=3e-3)
        assert torch.allclose(torch.cov(own.T), within, atol=3e-4)


def test_rows_lie_in_the_unit_ball_even_where_noise_made_a_variance_negative() -> None:
    within = torch.diag(torch.tensor([4.0, -0.5, 0.1]))
    rows, _ = embed(pooled(within, torch.zeros(2, 3)), 500, Key.seed(0))
    assert float(rows.norm(dim=1).max()) <= 1 + 1e-6
    assert float(rows[:, 1].abs().max()) < 1e-6
