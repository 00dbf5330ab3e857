"""Eigenvalues cleaned of known noise."""

from __future__ import annotations

import math

import torch

from prismfl.methods.prism.spectrum import cleaned, floor_of


def noisy(exact: torch.Tensor, noise: float, seed: int) -> torch.Tensor:
    size = len(exact)
    draw = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * noise
    return exact + torch.triu(draw) + torch.triu(draw, 1).T


def errors(exact: torch.Tensor, noise: float, seed: int) -> tuple[float, float]:
    """Squared distance to the exact matrix, as it came and cleaned."""
    matrix = noisy(exact, noise, seed)
    values, vectors = torch.linalg.eigh(matrix)
    better = vectors @ torch.diag(cleaned(values, noise=noise)) @ vectors.T
    return float((matrix - exact).square().sum()), float((better - exact).square().sum())


def test_without_noise_nothing_changes() -> None:
    values = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    assert torch.equal(cleaned(values, noise=0.0), values)


def test_pure_noise_is_cleaned_to_almost_nothing() -> None:
    exact = torch.zeros(100, 100, dtype=torch.float64)
    before, after = errors(exact, 0.1, 0)
    assert after < 0.05 * before


def test_a_covariance_with_few_strong_directions_comes_closer() -> None:
    exact = torch.diag(torch.cat([torch.tensor([5.0, 3.0, 2.0]), torch.full((97,), 0.1)]).double())
    for seed in range(3):
        before, after = errors(exact, 0.05, seed)
        assert after < 0.2 * before


def test_strong_eigenvalues_stay_and_order_is_kept() -> None:
    values = torch.cat([torch.linspace(-0.2, 0.2, 50, dtype=torch.float64), torch.tensor([50.0]).double()])
    found = cleaned(values, noise=0.01)
    assert abs(float(found[-1]) - 50.0) < 0.01
    assert bool((found.diff() >= 0).all())


def test_the_floor_grows_with_the_noise() -> None:
    values = torch.ones(64, dtype=torch.float64)
    assert math.isclose(floor_of(values, noise=0.1) - 1e-4, 0.15 * 2 * 0.1 * 8)
    assert floor_of(values, noise=0.0) == 1e-4
