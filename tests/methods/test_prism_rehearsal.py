"""What the rehearsals share: a rank from scores, and a played release that has the noise it says."""

from __future__ import annotations

import torch

from prismfl.methods.prism import statistics
from prismfl.methods.prism.head import HeadConfig
from prismfl.methods.prism.rehearsal import accuracy, pick, played_release


def test_where_nothing_is_learnt_the_smallest_rank_is_taken() -> None:
    assert pick({16: 11.0, 64: 12.0, 256: 11.0}, chance=10.0) == 16
    assert pick({16: 50.0, 64: 80.0, 256: 80.0}, chance=10.0) in (64, 256)


def test_a_played_release_without_noise_is_the_sums() -> None:
    cfg = HeadConfig(networks=0, rank=3, covariance=3, sigma=0.0)
    layout = statistics.layout_of(cfg, 3)
    u = torch.nn.functional.normalize(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    y = torch.arange(20) % 2
    found = played_release(cfg, layout, u, y, classes=2, generator=torch.Generator())
    assert torch.allclose(found["sums"][0, :3], layout.means * u[y == 0].sum(0), atol=1e-5)
    assert torch.allclose(found["sums"][:, -1], torch.tensor([10.0, 10.0]) * layout.count, atol=1e-5)


def test_accuracy_is_in_percent() -> None:
    model = {"weight": torch.eye(2), "bias": torch.zeros(2)}
    assert (
        accuracy(model, torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1, 1, 0]))
        == 75
    )
