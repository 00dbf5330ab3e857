"""Convolutions by tiles must be convolutions, to the last digits of a double."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from prismfl import winograd

SIZES = [(4, 4), (8, 16), (16, 12)]


def pictures(size: tuple[int, int], channels: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, channels, *size, generator=generator, dtype=torch.float64)


def kernel() -> torch.Tensor:
    return torch.randn(5, 7, 3, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_there_and_back(size: tuple[int, int], layout: torch.memory_format) -> None:
    x, back = (pictures(size, c, seed=c).contiguous(memory_format=layout) for c in (7, 5))
    weight = kernel()
    leaf, leaf_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = F.conv2d(leaf, leaf_weight, padding=1)
    by_x, by_weight = torch.autograd.grad(out, [leaf, leaf_weight], back)
    seen, seen_back, spread = winograd.cut(x), winograd.cut(back), winograd.spread(back)
    torch.testing.assert_close(winograd.join(seen.values @ winograd.kernel(weight), seen.size), out.detach())
    torch.testing.assert_close(winograd.join(seen_back.values @ winograd.turned(weight), seen.size), by_x)
    torch.testing.assert_close(winograd.kernel_gradient(seen, spread), by_weight)


@pytest.mark.parametrize("size", SIZES)
def test_the_kernels_gradient_of_each_record(size: tuple[int, int]) -> None:
    x, back, weight = pictures(size, 7), pictures(size, 5, seed=1), kernel().requires_grad_()
    wanted = [torch.autograd.grad(F.conv2d(x[[i]], weight, padding=1), weight, back[[i]])[0] for i in range(len(x))]
    by_tiles = winograd.kernel_gradients(winograd.cut(x), winograd.spread(back)).permute(0, 4, 3, 1, 2)
    torch.testing.assert_close(by_tiles, torch.stack(wanted))


def test_rounding_stays_small_in_single_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 128, 16, 16, generator=generator), torch.randn(128, 128, 3, 3, generator=generator)
    seen = winograd.cut(x)
    got = winograd.join(seen.values @ winograd.kernel(weight), seen.size)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    assert float((got - exact).norm() / exact.norm()) < 2e-6


@pytest.mark.parametrize(
    ("shape", "padding", "size"),
    [
        ((64, 64, 5, 5), 1, (8, 8)),
        ((64, 32, 3, 3), 1, (8, 8)),
        ((64, 64, 3, 3), 0, (8, 8)),
        ((64, 64, 3, 3), 1, (8, 6)),
    ],
)
def test_what_does_not_fit(shape: tuple[int, ...], padding: int, size: tuple[int, int]) -> None:
    assert winograd.fits(torch.zeros(64, 64, 3, 3), 1, 8, 8)
    assert not winograd.fits(torch.zeros(shape), padding, *size)
