"""The first block at once must be what autograd makes of its four layers, in parts of any size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from prismfl.kernels import first_block, plane_norm

EPS = 1e-5
CHANNELS = 6
Shape = tuple[int, int, int, int]  # channels, height, width, padding
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def three(shape: Shape, seed: int) -> Three:
    """A kernel, a gain and a shift."""
    return (
        numbers(CHANNELS, shape[0], 3, 3, seed=seed),
        numbers(CHANNELS, seed=seed + 1),
        numbers(CHANNELS, seed=seed + 2),
    )


def plainly(padding: int) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weight: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        z = F.conv2d(x, weight, padding=padding)
        return F.avg_pool2d(torch.relu(F.group_norm(z, CHANNELS, gain, shift, EPS)), 2)

    return run


@pytest.fixture(params=[(1, 6, 6, 1), (3, 4, 8, 1), (1, 4, 4, 3), (2, 6, 4, 0)], ids=str)
def shape(request: pytest.FixtureRequest) -> Shape:
    found: Shape = request.param
    return found


@pytest.fixture(params=[1, 2 * 36 * CHANNELS, 10**6])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one record, of a few, of all."""
    monkeypatch.setattr(plane_norm, "CACHED", request.param)


def means(shape: Shape, seed: int) -> torch.Tensor:
    _, h, w, padding = shape
    return numbers(5, CHANNELS, h // 2 + padding - 1, w // 2 + padding - 1, seed=seed)


def test_there_and_back(shape: Shape, cached: None) -> None:
    x, own, back, padding = numbers(5, *shape[:3], seed=0) + 3.0, three(shape, 1), means(shape, 4), shape[3]
    assert first_block.fits(x, own[0], padding)
    out, seen = first_block.forward(x, first_block.weights(*own), padding=padding, eps=EPS)
    found = first_block.backward(back, seen)
    torch.testing.assert_close(out, plainly(padding)(x, *own))
    by_kernel = first_block.as_kernel(found.by_kernel)
    for i in range(5):
        leaves = [t.clone().requires_grad_() for t in own]
        wanted = torch.autograd.grad(plainly(padding)(x[[i]], *leaves), leaves, back[[i]])
        for got, one in zip((by_kernel[i], found.by_gain[i], found.by_shift[i]), wanted):
            torch.testing.assert_close(got, one)


def test_along_a_direction(shape: Shape, cached: None) -> None:
    x, own, along, padding = numbers(5, *shape[:3], seed=0), three(shape, 1), three(shape, 5), shape[3]
    back, back_way = means(shape, 4), means(shape, 8)

    def there_and_back(back: torch.Tensor, *own: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.vjp(lambda x: plainly(padding)(x, *own), x)[1](back)[0]
        return found

    wanted = torch.func.jvp(lambda *own: plainly(padding)(x, *own), own, along)[1]
    wanted_back = torch.func.jvp(there_and_back, (back, *own), (back_way, *along))[1]
    way = first_block.weights(*along)
    _, seen = first_block.forward(x, first_block.weights(*own), padding=padding, eps=EPS)
    moved, kept = first_block.forward_along(seen, way)
    torch.testing.assert_close(moved, wanted)
    returned = first_block.backward(back, seen)
    torch.testing.assert_close(first_block.backward_along(back_way, seen, returned, kept, way), wanted_back)


@pytest.mark.parametrize("level", [0.0, 1.0, 30.0])
def test_ramps_that_a_kernel_does_not_see(level: float) -> None:
    """Second differences of a ramp are zero: nothing but rounding spreads, however steep it is."""
    rise, slopes = torch.arange(8.0), torch.linspace(-1.1, 0.9, 9)
    x = level * torch.stack([(a * rise[:, None] + (0.3 - a) * rise)[None] for a in slopes])
    along, across = torch.tensor([1.0, -2.0, 1.0]), torch.tensor([0.3, 1.0, 0.7])
    weight = torch.stack([along[:, None] * across, across[:, None] * along])[:, None]
    out, seen = first_block.forward(x, first_block.weights(weight, torch.ones(2), torch.ones(2)), padding=0, eps=EPS)
    torch.testing.assert_close(seen.factor, torch.full((9, 1, 2), EPS**-0.5), rtol=0.02, atol=0.0)
    assert bool(out.isfinite().all())


@pytest.mark.parametrize(("channels", "side"), [(first_block.FEW, 8), (1, 7)])
def test_what_does_not_fit(channels: int, side: int) -> None:
    x, weight = torch.zeros(1, channels, side, side), torch.zeros(4, channels, 3, 3)
    assert not first_block.fits(x, weight, 1)


def test_no_records() -> None:
    own = first_block.weights(torch.ones(3, 1, 3, 3), torch.ones(3), torch.zeros(3))
    out, seen = first_block.forward(torch.zeros(0, 1, 4, 4), own, padding=1, eps=EPS)
    assert out.shape == (0, 3, 2, 2)
    assert first_block.backward(out, seen).by_kernel.shape == (0, 9, 3)
