"""The U-Net: shapes, a first answer of zero, and no word between records."""

from __future__ import annotations

import pytest
import torch

from prismfl.kernels.loss import refuse_cross_record_layers
from prismfl.nets.unet import UNetShape, build_unet
from prismfl.rng import Key


def inputs(count: int, image: tuple[int, ...], classes: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    labels = torch.eye(classes)[torch.arange(count) % classes]
    return torch.randn(count, *image, generator=g), torch.randn(count, generator=g), labels


@pytest.mark.parametrize("image", [(1, 8, 8), (3, 12, 12), (1, 28, 28)])
def test_as_many_numbers_as_pixels(image: tuple[int, ...]) -> None:
    net = build_unet(UNetShape(image, 2, 4), Key.seed(0))
    assert net(*inputs(3, image)).shape == (3, *image)


def test_it_begins_with_zero() -> None:
    net = build_unet(UNetShape((1, 8, 8), 2, 4), Key.seed(0))
    assert not net(*inputs(2, (1, 8, 8))).any()


def test_a_record_is_answered_as_if_it_were_alone() -> None:
    net = build_unet(UNetShape((1, 8, 8), 2, 4), Key.seed(0))
    torch.nn.init.normal_(net.out.weight, std=0.3)
    refuse_cross_record_layers(net)
    x, level, labels = inputs(4, (1, 8, 8))
    alone = torch.cat([net(x[i : i + 1], level[i : i + 1], labels[i : i + 1]) for i in range(4)])
    assert torch.allclose(net(x, level, labels), alone, atol=1e-5)


def test_class_and_noise_level_change_the_answer() -> None:
    net = build_unet(UNetShape((1, 8, 8), 2, 4), Key.seed(0))
    torch.nn.init.normal_(net.out.weight, std=0.3)
    x, level, labels = inputs(1, (1, 8, 8))
    base = net(x, level, labels)
    assert not torch.allclose(base, net(x, level, labels.flip(1)), atol=1e-4)
    assert not torch.allclose(base, net(x, level + 1.0, labels), atol=1e-4)


def test_the_key_decides_and_the_global_seed_is_left_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, again, other = (build_unet(UNetShape((1, 8, 8), 2, 4), Key.seed(s)).stem.weight for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("width", "groups"), [(24, 8), (6, 2), (5, 1), (16, 8)])
def test_groups_divide_the_width(width: int, groups: int) -> None:
    assert UNetShape((1, 8, 8), 2, width).groups == groups
