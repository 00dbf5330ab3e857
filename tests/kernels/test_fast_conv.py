"""Convolutions by tiles and by patches must be convolutions, to the last digits of a double."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from prismfl.kernels import fast_conv

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
    seen, seen_back, spread = fast_conv.cut(x), fast_conv.cut(back), fast_conv.spread(back)
    torch.testing.assert_close(fast_conv.join(seen.values @ fast_conv.kernel(weight), seen.size), out.detach())
    torch.testing.assert_close(fast_conv.join(seen_back.values @ fast_conv.turned(weight), seen.size), by_x)
    torch.testing.assert_close(fast_conv.kernel_gradient(seen, spread), by_weight)


@pytest.mark.parametrize("size", SIZES)
def test_the_kernels_gradient_of_each_record(size: tuple[int, int]) -> None:
    x, back, weight = pictures(size, 7), pictures(size, 5, seed=1), kernel().requires_grad_()
    wanted = [torch.autograd.grad(F.conv2d(x[[i]], weight, padding=1), weight, back[[i]])[0] for i in range(len(x))]
    by_tiles = fast_conv.kernel_gradients(fast_conv.cut(x), fast_conv.spread(back)).permute(0, 4, 3, 1, 2)
    torch.testing.assert_close(by_tiles, torch.stack(wanted))


def test_many_pictures_are_cut_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pictures((8, 16), 7)
    at_once = fast_conv.cut(x).values
    monkeypatch.setattr(fast_conv, "CACHED", 2 * x[0].numel())
    torch.testing.assert_close(fast_conv.cut(x).values, at_once)


@pytest.mark.parametrize("padding", [(1, 1), (3, 3), (0, 2)])
def test_by_patches(padding: tuple[int, int]) -> None:
    x, weight = pictures((7, 6), 7), kernel().requires_grad_()
    out = F.conv2d(x, weight, padding=padding)
    back = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(fast_conv.by_patches(x, weight, padding), out)
    wanted = [torch.autograd.grad(F.conv2d(x[[i]], weight, padding=padding), weight, back[[i]])[0] for i in range(3)]
    got = fast_conv.patch_gradients(x, back, padding).permute(0, 1, 4, 2, 3)
    torch.testing.assert_close(got, torch.stack(wanted))


def test_rounding_stays_small_in_single_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 128, 16, 16, generator=generator), torch.randn(128, 128, 3, 3, generator=generator)
    seen = fast_conv.cut(x)
    got = fast_conv.join(seen.values @ fast_conv.kernel(weight), seen.size)
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
    assert fast_conv.fits(torch.zeros(64, 64, 3, 3), 1, 8, 8)
    assert not fast_conv.fits(torch.zeros(shape), padding, *size)
