"""How far synthetic images are from private ones: distances a pixel, copies, the nearest record."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.metrics.visual import compare


def flat(*shades: float) -> torch.Tensor:
    return torch.tensor(shades)[:, None, None, None].expand(len(shades), 1, 12, 12).contiguous()


def test_distances_are_root_mean_squares_a_pixel() -> None:
    found = compare(flat(0.3, 0.8), private=flat(0.0, 1.0), held_out=flat(0.1, 0.4), seeds=None)
    assert found.distance_synthetic == pytest.approx(0.2)  # the median of 0.3 and 0.2, the lower of both
    assert found.closest_synthetic == pytest.approx(0.2)
    assert found.distance_held_out == pytest.approx(0.1)
    assert found.nearest.tolist() == [0, 1]


def test_a_copy_is_counted() -> None:
    private = torch.rand(5, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    made = torch.cat([private[3:4], flat(0.5)])
    found = compare(made, private=private, held_out=flat(0.1), seeds=None)
    assert found.copies == 1
    assert found.closest_synthetic == 0.0
    assert int(found.nearest[0]) == 3
    assert found.ssim_private <= 1.0


def test_images_that_are_their_seeds_have_similarity_one() -> None:
    images = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    found = compare(images, private=flat(0.0), held_out=flat(1.0), seeds=images)
    assert found.ssim_seed == pytest.approx(1.0, abs=1e-4)
    assert math.isnan(compare(images, private=flat(0.0), held_out=flat(1.0), seeds=None).ssim_seed)


def test_the_nearest_is_found_in_any_block_of_many_records() -> None:
    """Records are compared with four thousand at a time."""
    private = torch.zeros(4100, 1, 12, 12)
    private[4050] = 0.7
    found = compare(flat(0.7), private=private, held_out=flat(0.1), seeds=None)
    assert (found.closest_synthetic, found.nearest.tolist()) == (0.0, [4050])


def test_no_picture_is_among_the_numbers() -> None:
    numbers = compare(flat(0.5), private=flat(0.0), held_out=flat(1.0), seeds=None).as_dict()
    assert "nearest" not in numbers
    assert all(isinstance(v, int | float) for v in numbers.values())


def test_bytes_are_compared_as_the_pictures_they_stand_for() -> None:
    private = torch.randint(256, (7, 3, 12, 12), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    made, held = private[2:4].float() / 255, private[5:]
    found = compare(made, private=private, held_out=held, seeds=None)
    floats = compare(made, private=private.float() / 255, held_out=held.float() / 255, seeds=None)
    assert found.as_dict() == pytest.approx(floats.as_dict(), nan_ok=True)
    assert found.copies == 2
