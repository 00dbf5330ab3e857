"""The scattering transform by its properties: hand-computed averages, bounds, stability, angles."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.scattering import ANGLES, Scattering, build, grid_of, octaves_of, wavelets, window


def shapes(n: int = 6, side: int = 28, channels: int = 1) -> torch.Tensor:
    """Smooth blobs and bars, a few pixels wide, away from the border."""
    place = torch.arange(side).float()
    found = torch.zeros(n, channels, side, side)
    for i in range(n):
        y, x = side / 2 + (i % 3 - 1) * side / 8, side / 2 + (i % 2) * side / 8
        wide = side / 10 * (1 + i % 3)
        found[i] = torch.exp(-((place[:, None] - y) ** 2) / side - (place[None, :] - x) ** 2 / wide**2)
    return found


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 8), (1, 28), (3, 32), (1, 45), (3, 48), (1, 100)])
def test_any_side_from_eight_and_any_channels(channels: int, side: int) -> None:
    found = Scattering().activations(torch.rand(2, channels, side, side))
    assert list(found) == ["order0", "order1", "order2"]
    octaves = octaves_of(min(side, 64))
    cells = channels * grid_of(octaves, channels) ** 2
    widths = [1, ANGLES * octaves, ANGLES**2 * octaves * (octaves - 1) // 2]
    assert [rows.shape for rows in found.values()] == [(2, cells * width) for width in widths]
    assert all(bool(torch.isfinite(rows).all()) for rows in found.values())


def test_a_smaller_image_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match="at least 8 x 8 pixels, got 7 x 9"):
        Scattering().activations(torch.rand(1, 1, 7, 9))
    assert build(28).activations(torch.rand(1, 1, 7, 7))["order0"].shape[0] == 1


def test_order_zero_by_hand() -> None:
    """One bright pixel: each window's share of it, the product of the two Gaussian weights over their sums."""
    image = torch.zeros(1, 1, 28, 28)
    image[0, 0, 9, 17] = 1.0
    found = Scattering().activations(image)["order0"].reshape(5, 5)

    def weight(cell: int, pixel: int) -> float:
        middle, wide = (cell + 0.5) * 5.6, 2.8
        bell = [math.exp(-0.5 * ((p + 0.5 - middle) / wide) ** 2) for p in range(28)]
        return bell[pixel] / sum(bell)

    by_hand = torch.tensor([[weight(g, 9) * weight(k, 17) for k in range(5)] for g in range(5)])
    assert torch.allclose(found, by_hand, atol=1e-6)


def test_a_flat_image_has_its_brightness_and_nothing_else() -> None:
    found = Scattering().activations(torch.full((1, 1, 28, 28), 0.6))
    assert torch.allclose(found["order0"], torch.full_like(found["order0"], 0.6), atol=1e-5)
    assert float(found["order1"].max()) < 1e-5
    assert float(found["order2"].max()) < 1e-5


def test_wavelets_have_no_mean_and_an_absolute_sum_of_one() -> None:
    for octave in range(3):
        found = wavelets(octave)[:, 0]
        assert float(found.sum((1, 2)).abs().max()) < 1e-5
        size = (found[:ANGLES].square() + found[ANGLES:].square()).sqrt().sum((1, 2))
        assert torch.allclose(size, torch.ones(ANGLES), atol=1e-5)
    assert torch.allclose(window(28, 5, 1).sum(1), torch.ones(5), atol=1e-6)


def test_energy_is_bounded() -> None:
    """No number of an image in [0, 1] leaves [0, 1], however wild the image; each order has less than the last."""
    images = torch.cat([(torch.rand(4, 1, 28, 28) > 0.5).float(), shapes(4)])
    images[0, 0] = (torch.arange(28)[:, None] + torch.arange(28)) % 2
    found = Scattering().activations(images)
    assert all(float(rows.min()) >= 0.0 and float(rows.max()) <= 1.0 for rows in found.values())
    means = [rows.mean(1) for rows in found.values()]
    assert bool((means[1] < means[0]).all())
    assert bool((means[2] < means[1]).all())


def test_a_shift_by_one_pixel_moves_rows_little() -> None:
    """Of thin strokes a shift moves most pixels, and each order far less."""
    images = torch.zeros(4, 1, 28, 28)
    images[0, 0, 6:22, 10] = images[1, 0, 14, 5:20] = 1.0
    for i in range(16):
        images[2, 0, 6 + i, 8 + i // 2] = images[3, 0, 20 - i, 6 + i] = 1.0
    moved = torch.roll(images, 1, dims=3)
    assert float((moved - images).norm() / images.norm()) > 0.9
    for layer, rows in Scattering().activations(images).items():
        change = float((Scattering().activations(moved)[layer] - rows).norm() / rows.norm())
        assert change < 0.25, layer


def test_angles_are_told_apart() -> None:
    """Vertical bars answer where the wave runs across them, horizontal ones a quarter turn on."""
    place = torch.arange(28).float()
    bars = (0.5 + 0.5 * torch.cos(0.75 * math.pi * place)).expand(28, 28)
    found = Scattering().activations(torch.stack([bars, bars.T])[:, None])["order1"]
    by_angle = found.reshape(2, 2, ANGLES, -1).mean(3)[:, 0]
    assert by_angle.argmax(1).tolist() == [0, ANGLES // 2]


def test_it_is_differentiable_even_where_nothing_is() -> None:
    images = shapes(2)
    images[1] = 0.0
    images.requires_grad_()
    sum(rows.sum() for rows in Scattering()(images).values()).backward()
    assert images.grad is not None
    assert bool(torch.isfinite(images.grad).all())
    assert float(images.grad[0].abs().max()) > 0


def test_its_words() -> None:
    assert (Scattering().pretrained, Scattering().trained_on) == (False, "nothing: fixed wavelets")
    assert Scattering().digest != Scattering(28).digest
