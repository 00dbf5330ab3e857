"""Small changes of images: the identity where nothing is drawn, exact shifts, crops and mixtures."""

from __future__ import annotations

import pytest
import torch

from prismfl.nets.augment import affine, blended, crops, shift_and_flip, warp

IMAGE = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_of_zero_change_nothing(channels: int) -> None:
    x = IMAGE.expand(2, channels, 8, 8)
    assert torch.allclose(warp(x, torch.zeros(2, 6)), x, atol=1e-5)


def test_a_mirror_needs_leave() -> None:
    u = torch.zeros(2, 6)
    u[:, 5] = 1.0
    assert torch.allclose(warp(IMAGE, u), IMAGE, atol=1e-5)
    assert torch.allclose(warp(IMAGE, u, flip=True), IMAGE.flip(3), atol=1e-5)


def test_a_shift_moves_by_seven_hundredths_of_the_side() -> None:
    """0.14 of half a side is 7 % of it: one pixel in a hundred of 14.29, so of 100 pixels seven."""
    x = torch.zeros(1, 1, 100, 100)
    x[0, 0, 50, 50] = 1.0
    u = torch.zeros(1, 6)
    u[0, 2] = 1.0
    moved = warp(x, u)
    assert float(moved[0, 0, 50, 43]) == pytest.approx(1.0, abs=1e-3)


def test_each_image_is_changed_by_itself() -> None:
    u = torch.rand(2, 6) * 2 - 1
    together = warp(IMAGE, u)
    alone = torch.cat([warp(IMAGE[i : i + 1], u[i : i + 1]) for i in range(2)])
    assert torch.allclose(together, alone, atol=1e-6)


def test_grey_ground_is_black_and_colour_is_reflected() -> None:
    """A white picture shifted: grey ones get black from outside, colour ones do not."""
    u = torch.zeros(1, 6)
    u[0, 2] = 1.0
    assert float(warp(torch.ones(1, 1, 16, 16), u).min()) < 0.5
    assert float(warp(torch.ones(1, 3, 16, 16), u).min()) > 0.99


def test_affine_follows_its_generator() -> None:
    one, again, other = (affine(IMAGE, generator(s)) for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_shift_of_nothing_only_mirrors() -> None:
    found = shift_and_flip(IMAGE.repeat(20, 1, 1, 1), generator(), shift=0)
    same = [torch.equal(a, b) for a, b in zip(found, IMAGE.repeat(20, 1, 1, 1))]
    mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(found, IMAGE.repeat(20, 1, 1, 1))]
    assert all(a or b for a, b in zip(same, mirrored))
    assert 5 < sum(same) < 35


def test_a_shift_moves_whole_pixels_over_a_reflected_border() -> None:
    found = shift_and_flip(IMAGE.repeat(10, 1, 1, 1), generator(), shift=2)
    values = set(IMAGE.flatten().tolist())
    assert set(found.flatten().tolist()) <= values


def test_a_crop_of_the_whole_is_the_picture() -> None:
    assert crops(IMAGE, least=1, generator=generator()) is IMAGE


def test_crops_keep_size_and_range() -> None:
    found = crops(IMAGE.repeat(5, 1, 1, 1), least=0.5, generator=generator())
    assert found.shape == (10, 1, 8, 8)
    assert float(found.min()) >= float(IMAGE.min()) - 1e-5
    assert float(found.max()) <= float(IMAGE.max()) + 1e-5
    assert not torch.equal(found[0], found[2])


def test_mixtures_lie_between_their_two_pictures() -> None:
    two = torch.stack([torch.zeros(1, 4, 4), torch.ones(1, 4, 4)])
    mixed = blended(two, 200, generator())
    assert mixed.shape == (200, 1, 4, 4)
    assert bool((mixed.flatten(1).std(1) < 1e-6).all())  # each mixes flat pictures: it is flat
    shades = mixed[:, 0, 0, 0]
    assert 0.0 <= float(shades.min()) < 0.2 < 0.8 < float(shades.max()) <= 1.0


def test_pictures_that_are_no_squares_keep_their_form() -> None:
    wide = torch.rand(3, 3, 5, 9, generator=generator())
    assert shift_and_flip(wide, generator(), shift=2).shape == wide.shape
    assert shift_and_flip(wide.mT.contiguous(), generator(), shift=2).shape == (3, 3, 9, 5)
