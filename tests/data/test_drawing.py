"""Brushes of drawn images: in range, of the promised moments, from the generator alone."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.data.drawing import dead_leaves, grid, palette, smooth_noise, uniform


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_pixel_centres_span_minus_one_to_one_along_the_longer_side() -> None:
    y, x = grid(2, 4)
    assert x[0].tolist() == [-0.75, -0.25, 0.25, 0.75]
    assert y[:, 0].tolist() == [-0.25, 0.25]
    assert y.shape == x.shape == (2, 4)


def test_uniform_numbers_are_single_precision_in_their_range() -> None:
    drawn = uniform(rng(), 2.0, 3.0, 50, 2)
    assert drawn.dtype == np.float32
    assert drawn.shape == (50, 2)
    assert 2.0 <= drawn.min() < 2.2 < 2.8 < drawn.max() <= 3.0


@pytest.mark.parametrize("mirrored", [False, True])
def test_noise_has_mean_zero_and_variance_one_in_each_image(mirrored: bool) -> None:
    noise = smooth_noise(rng(), 3, 16, 12, grain=0.2, mirrored=mirrored)
    assert noise.shape == (3, 16, 12)
    assert np.allclose(noise.mean((1, 2)), 0.0, atol=1e-9)
    assert np.allclose(noise.std((1, 2)), 1.0, atol=1e-6)
    assert np.allclose(noise, noise[:, :, ::-1]) == mirrored


def test_a_larger_grain_is_smoother() -> None:
    def roughness(grain: float) -> float:
        noise = smooth_noise(rng(), 4, 16, 16, grain=grain, mirrored=False)
        return float(np.abs(np.diff(noise, axis=2)).mean())

    assert roughness(0.05) > 2 * roughness(0.3)


def test_palettes_are_colours() -> None:
    colours = palette(rng(), 20)
    assert colours.shape == (20, 7, 3)
    assert colours.min() >= 0.0
    assert colours.max() <= 1.0
    assert colours.std(axis=1).mean() > 0.05


def test_leaves_are_pictures_that_differ_and_are_repeatable() -> None:
    one, again, other = (dead_leaves(rng(s), 3, 12, 10) for s in (1, 1, 2))
    assert one.shape == (3, 12, 10, 3)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.min() >= 0.0
    assert one.max() <= 1.0
    assert one.std(axis=(1, 2)).min() > 0.01
    assert one.dtype == np.float32
