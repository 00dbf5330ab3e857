"""Noisy means and covariances of classes: what a record adds, what comes out, and classes that nobody has."""

from __future__ import annotations

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.methods.generators.class_moments import ClassMoments
from prismfl.methods.generators.diffusers import OnFrequencies, fixed_of
from prismfl.nets.diffusion import Sampler
from prismfl.nets.frequencies import Coefficients
from prismfl.rng import Key

SPACE = Coefficients((1, 8, 8), 3)


def door_to(records: Records, *, seed: int = 0) -> PrivateRecords:
    return PrivateRecords(records, declared=len(records), classes=3, noise=Key.seed(seed).noise())


def some_pictures(count: int, classes: int = 3) -> Records:
    g = torch.Generator().manual_seed(3)
    y = torch.arange(count) % classes
    base = torch.rand(3, 1, 8, 8, generator=g) * 0.4 + 0.2
    return Records((base[y] + 0.1 * torch.randn(count, 1, 8, 8, generator=g)).clamp(0, 1), y)


def test_without_noise_they_are_the_moments_of_the_records() -> None:
    records = some_pictures(3000)
    asked = ClassMoments(SPACE, 3, 1e-6, bound=1.0, spread=1.0)
    sums = asked.ask(door_to(records))
    assert sums.shape == asked.shape
    torch.testing.assert_close(asked.counts(sums, records=3000), torch.full((3,), 1000.0), rtol=1e-3, atol=0.1)
    found, rows = asked.gaussians(sums), SPACE.of(records.x)
    for c in range(3):
        own = rows[records.y == c]
        torch.testing.assert_close(found.mean[c], own.mean(0), rtol=1e-3, atol=1e-3)
        covariance = found.axes[c] @ torch.diag(found.variance[c]) @ found.axes[c].T
        torch.testing.assert_close(covariance, torch.cov(own.T, correction=0), rtol=1e-2, atol=1e-4)


def test_a_class_that_nobody_has_is_near_nothing() -> None:
    """Noise over a size that is noise itself must not become a far mean, which a server would refuse."""
    records = some_pictures(3000, classes=2)
    asked = ClassMoments(SPACE, 3, 5.0)
    found = asked.gaussians(asked.ask(door_to(records)))
    assert float(found.mean[2].abs().max()) < 8.0
    assert float(found.variance.min()) > 0.0
    assert bool(torch.isfinite(found.variance).all())


def test_noise_is_not_taken_for_variance() -> None:
    """Under much noise a class falls back on what all classes share, and stays a covariance."""
    records = some_pictures(3000)
    exact = ClassMoments(SPACE, 3, 1e-6, spread=0.5)
    noisy = ClassMoments(SPACE, 3, 20.0, spread=0.5)
    quiet, loud = (one.gaussians(one.ask(door_to(records))) for one in (exact, noisy))
    assert float(loud.variance.sum(1).max()) < 4.0 * float(quiet.variance.sum(1).max())
    assert float(loud.variance.min()) > 0.0


def test_sums_of_sites_are_the_sums_of_all() -> None:
    records = some_pictures(3000)
    asked = ClassMoments(SPACE, 3, 1e-6, bound=1.0, spread=1.0)
    half = torch.arange(3000) < 1500
    parts = [Records(records.x[rows], records.y[rows]) for rows in (half, ~half)]
    pooled = asked.gaussians(torch.stack([asked.ask(door_to(part)) for part in parts]).sum(0), sites=2)
    whole = asked.gaussians(asked.ask(door_to(records)))
    torch.testing.assert_close(pooled.mean, whole.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(pooled.variance, whole.variance, rtol=0.05, atol=1e-4)


@pytest.mark.parametrize("size", [1.0, 1e8, 3e38])
def test_whatever_sums_a_server_sends_a_record_counts_for_no_more_than_the_clip(size: float) -> None:
    """Pooled sums come back from the server: a record that is taken away must not move what the others add."""
    asked, g = ClassMoments(SPACE, 3, 2.0), torch.Generator().manual_seed(1)
    sums = (size * torch.randn(asked.shape, generator=g)).clamp(-3e38, 3e38)
    sums[..., SPACE.count] = 1000.0
    model = OnFrequencies(SPACE, 3, 16, Sampler(), True, "cpu")
    loss = model.loss(fixed_of(asked.gaussians(sums, sites=5)))
    fresh = model.fresh(Key.seed(0)).params
    params = {k: p + 0.3 * torch.randn(p.shape, generator=g) for k, p in fresh.items()}
    records, z = some_pictures(40), torch.randn(40, model.normals(3), generator=g)

    def gradient(keep: torch.Tensor) -> torch.Tensor:
        batch = (records.x[keep], records.y[keep], z[keep])
        found = clipped_gradient_sum(loss, params, batch=batch, clip=1.0, expected=32.0)
        return torch.cat([part.flatten() for part in found.values()])

    whole = gradient(torch.arange(40))
    assert bool(torch.isfinite(whole).all())
    for gone in (0, 17):
        rest = gradient(torch.tensor([i for i in range(40) if i != gone]))
        assert float((whole - rest).norm()) <= 1.0 + 1e-5
