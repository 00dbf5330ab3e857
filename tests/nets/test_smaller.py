"""Large pictures are looked at smaller: all alike, small ones not at all, and with a gradient."""

from __future__ import annotations

import pytest
import torch

from prismfl.nets.patches import learn_patches
from prismfl.nets.random_nets import random_nets
from prismfl.nets.smaller import LARGE, LOOKED, smaller
from prismfl.rng import Key


def pictures(height: int, width: int, count: int = 6) -> torch.Tensor:
    return torch.rand(count, 3, height, width, generator=Key.seed(0).torch())


def test_pictures_up_to_the_limit_are_left_alone() -> None:
    x = pictures(LARGE, LARGE - 1)
    assert smaller(x) is x


@pytest.mark.parametrize(("size", "seen"), [((128, 128), (32, 32)), ((65, 130), (16, 32)), ((1, 500), (1, 32))])
def test_a_large_picture_keeps_its_form(size: tuple[int, int], seen: tuple[int, int]) -> None:
    found = smaller(pictures(*size))
    assert tuple(found.shape[2:]) == seen
    assert smaller(found) is found, "looking twice is looking once"


def test_brightness_stays_and_gradients_pass() -> None:
    x = torch.full((1, 1, 128, 128), 0.25, requires_grad=True)
    found = smaller(x)
    assert torch.allclose(found, torch.full((1, 1, LOOKED, LOOKED), 0.25))
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert (x.grad > 0).all()


def test_a_pictures_own_numbers_do_not_depend_on_the_others() -> None:
    x = pictures(100, 100)
    assert torch.equal(smaller(x)[2:3], smaller(x[2:3]))


@pytest.mark.parametrize("size", [(16, 16), (12, 20), (20, 12), (96, 96), (90, 130)])
def test_networks_and_patches_look_at_pictures_of_any_form(size: tuple[int, int]) -> None:
    x = pictures(*size, count=12)
    (net,) = random_nets(x, count=1, width=4, features=5, depth=3, key=Key.seed(1))
    patches = learn_patches(x, atoms=4, side=3, stride=1, pool=2, colour=4, key=Key.seed(2), samples=200)
    with torch.no_grad():
        assert net(x).shape == (12, 5)
        assert torch.allclose(net(smaller(x)), net(x))
        assert torch.allclose(patches(smaller(x)), patches(x))
    assert bool(patches(x).isfinite().all())
