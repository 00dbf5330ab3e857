"""Diffusion among low frequencies by hand: the transform, Gaussians, noise levels, the loss of a record."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.nets.frequencies import LEVEL_MEAN, LEVEL_SPREAD, Coefficients, Denoiser, Gaussians, levels
from prismfl.rng import Key

SPACE = Coefficients((2, 8, 8), 3)


def some_gaussians(classes: int = 2) -> Gaussians:
    g = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(classes, SPACE.count, SPACE.count, generator=g).double())[0]
    mean, spread = (torch.rand(classes, SPACE.count, generator=g).double() for _ in range(2))
    return Gaussians(mean, axes, 0.1 + spread)


def test_all_frequencies_are_the_picture_and_few_are_its_nearest() -> None:
    x = torch.rand(5, 2, 8, 8)
    whole = Coefficients((2, 8, 8), 8)
    rows = whole.of(x)
    torch.testing.assert_close(rows.norm(dim=1), x.double().flatten(1).norm(dim=1))  # lengths are kept
    torch.testing.assert_close(whole.pictures(rows), x)
    low = SPACE.of(x)
    assert low.shape == (5, SPACE.count)
    torch.testing.assert_close(SPACE.of(SPACE.pictures(low)), low, atol=0.2, rtol=0.0)
    even = torch.full((1, 2, 8, 8), 0.5)
    torch.testing.assert_close(SPACE.pictures(SPACE.of(even)), even)
    assert float(SPACE.of(even)[0, 0]) == pytest.approx(0.5 * 8)


def test_a_gaussian_denoises_as_bayes_does() -> None:
    """Of a class with mean m and covariance C, from noise of level s: m + C (C + s^2)^-1 (z - m)."""
    prior = some_gaussians()
    z, s = torch.rand(1, 1, SPACE.count).double(), torch.tensor([[0.7]]).double()
    for y in (0, 1):
        covariance = prior.axes[y] @ torch.diag(prior.variance[y]) @ prior.axes[y].T
        kept = covariance @ torch.linalg.inv(covariance + 0.49 * torch.eye(SPACE.count))
        expected = prior.mean[y] + kept @ (z[0, 0] - prior.mean[y])
        torch.testing.assert_close(prior.clean(z, s, torch.tensor([y]))[0, 0], expected)


def test_draws_have_the_mean_and_the_covariance() -> None:
    prior = some_gaussians()
    rows = prior.draw(torch.ones(20_000, dtype=torch.int64), torch.Generator().manual_seed(0))
    covariance = prior.axes[1] @ torch.diag(prior.variance[1]) @ prior.axes[1].T
    torch.testing.assert_close(rows.mean(0), prior.mean[1], atol=0.03, rtol=0.0)
    torch.testing.assert_close(torch.cov(rows.T), covariance, atol=0.06, rtol=0.0)


@pytest.mark.parametrize("draws", [1, 4])
def test_the_levels_of_a_record_share_their_distribution(draws: int) -> None:
    z = torch.randn(4000, generator=torch.Generator().manual_seed(0)).double()
    found = torch.stack([levels(one, draws) for one in z]).log()
    assert float(found.mean()) == pytest.approx(LEVEL_MEAN, abs=0.05)
    assert float(found.std()) == pytest.approx(LEVEL_SPREAD, rel=0.03)
    middle = LEVEL_MEAN if draws > 1 else math.inf
    assert bool((found[:, : draws // 2] <= middle).all())
    assert bool((found.diff(dim=1) > 0).all())


def test_the_loss_of_a_record_is_the_mean_over_its_draws() -> None:
    denoiser = Denoiser(SPACE, 2, 4, some_gaussians())
    module = denoiser.build(Key.seed(0))
    params = {k: p.detach() + 0.1 for k, p in module.named_parameters()}
    x, y, z = torch.rand(2, 8, 8), torch.tensor(1), torch.randn(denoiser.normals(3))
    level, noise = levels(z[0].double(), 3), z[1:].reshape(3, -1).double()
    clean, errors = SPACE.of(x), []
    for s, n in zip(level, noise):
        made = denoiser.clean(module, params, (clean + s * n)[None], level=s[None], y=y)[0]
        errors.append(float(((made - clean) / denoiser.prior.doubt(s)).square().mean()))
    assert float(denoiser.loss(module)(params, x, y, z)) == pytest.approx(sum(errors) / 3, rel=1e-4)


def test_a_fresh_network_says_what_the_gaussians_say() -> None:
    denoiser = Denoiser(SPACE, 2, 4, some_gaussians())
    module = denoiser.build(Key.seed(0))
    params = {k: p.detach() for k, p in module.named_parameters()}
    rows, level = torch.rand(3, SPACE.count).double(), torch.tensor([0.1, 1.0, 5.0]).double()
    for y in (torch.tensor(0), torch.tensor(1)):
        guess = denoiser.prior.clean(rows, level, y)
        assert torch.equal(denoiser.clean(module, params, rows, level=level, y=y), guess)
    again = {k: p.detach() for k, p in denoiser.build(Key.seed(0)).named_parameters()}
    assert all(torch.equal(params[k], again[k]) for k in params)


def test_a_label_is_as_long_as_the_root_of_the_number_of_classes() -> None:
    """A label of length 1 beside hundreds of numbers hardly counts in a clipped gradient."""
    denoiser = Denoiser(SPACE, 5, 4, some_gaussians(5))
    rows, level = torch.rand(3, SPACE.count).double(), torch.ones(3).double()
    first, second = (denoiser.seen(rows, level, torch.tensor(y))[0] for y in (1, 2))
    label = slice(2 * SPACE.count, 2 * SPACE.count + 5)
    torch.testing.assert_close(first[:, label].norm(dim=1), torch.full((3,), math.sqrt(5)))
    assert bool(((first != second)[:, label].sum(1) == 2).all())
