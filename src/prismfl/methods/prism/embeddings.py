"""Synthetic embeddings: rows in the coordinates of the public features, drawn from the released Gaussians."""

from __future__ import annotations

import torch

from prismfl.methods.prism.head import Pooled
from prismfl.rng import Key


def embed(pooled: Pooled, count: int, key: Key) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` rows of every class and their labels; the coordinates have norm one at most, as those of records have."""
    labels = torch.arange(len(pooled.means)).repeat_interleave(count)
    values, vectors = torch.linalg.eigh(pooled.within.double())
    root = vectors * values.clamp_min(0.0).sqrt()
    noise = torch.randn(len(labels), root.shape[1], generator=key.torch(), dtype=torch.float64)
    rows = pooled.means.double()[labels] + noise @ root.T
    return (rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0)).float(), labels
