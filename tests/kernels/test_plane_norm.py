"""Norm, ReLU and pooling in one go must be what autograd makes of the three, in parts of any size."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from prismfl.kernels import plane_norm

EPS = 1e-5
CHANNELS = 6


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plainly(z: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(torch.relu(F.group_norm(z, CHANNELS, gain, shift, EPS)), 2)


@pytest.fixture(params=[(6, 6), (7, 6), (5, 9), (2, 2)], ids=str)
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    found: tuple[int, int] = request.param
    return found


@pytest.fixture(params=[1, 2 * 6 * 36, 10**6])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one record, of a few, of all."""
    monkeypatch.setattr(plane_norm, "CACHED", request.param)


def test_there_and_back(size: tuple[int, int], cached: None) -> None:
    z, gain, shift = numbers(5, CHANNELS, *size, seed=0), numbers(CHANNELS, seed=1), numbers(CHANNELS, seed=2)
    back = numbers(5, CHANNELS, size[0] // 2, size[1] // 2, seed=3)
    leaf = z.clone().requires_grad_()
    out = plainly(leaf, gain, shift)
    pooled, kept = plane_norm.forward(z.clone(), gain, shift, EPS)
    before, done = plane_norm.backward(back, kept)
    torch.testing.assert_close(pooled, out.detach())
    torch.testing.assert_close(before, torch.autograd.grad(out, leaf, back)[0])
    for i in range(5):
        own = [gain.clone().requires_grad_(), shift.clone().requires_grad_()]
        by_gain, by_shift = torch.autograd.grad(plainly(z[[i]], *own), own, back[[i]])
        torch.testing.assert_close(done.by_gain[i, 0], by_gain)
        torch.testing.assert_close(done.by_shift[i, 0], by_shift)


def test_along_a_direction(size: tuple[int, int], cached: None) -> None:
    z, gain, shift = numbers(5, CHANNELS, *size, seed=0), numbers(CHANNELS, seed=1), numbers(CHANNELS, seed=2)
    ways = (numbers(5, CHANNELS, *size, seed=4), numbers(CHANNELS, seed=5), numbers(CHANNELS, seed=6))
    back, back_way = (numbers(5, CHANNELS, size[0] // 2, size[1] // 2, seed=s) for s in (3, 7))

    def there_and_back(z: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.vjp(lambda z: plainly(z, gain, shift), z)[1](back)[0]
        return found

    wanted = torch.func.jvp(plainly, (z, gain, shift), ways)[1]
    wanted_back = torch.func.jvp(there_and_back, (z, gain, shift, back), (*ways, back_way))[1]
    _, kept = plane_norm.forward(z.clone(), gain, shift, EPS)
    _, done = plane_norm.backward(back, kept)
    moved, along = plane_norm.forward_along(ways[0].clone(), kept, *ways[1:])
    torch.testing.assert_close(moved, wanted)
    torch.testing.assert_close(plane_norm.backward_along(back_way, kept, done, along, ways[1]), wanted_back)


def test_no_records() -> None:
    pooled, kept = plane_norm.forward(torch.zeros(0, 3, 4, 4), torch.ones(3), torch.zeros(3), EPS)
    assert pooled.shape == (0, 3, 2, 2)
    assert plane_norm.backward(pooled, kept)[0].shape == (0, 3, 4, 4)
