"""3x3 convolutions as a CPU does them fast: wide ones by Winograd's tiles, those of few channels by patches.

Winograd's F(4x4, 3x3) needs a quarter of the multiplications. A picture is cut into tiles of 6x6 pixels that overlap by
two, and a fixed linear map turns each into 36 numbers a channel (`cut`). There a convolution is 36 products of matrices
over the channels, and another fixed map turns products into 4x4 results (`join`). The gradient by the kernel goes the
same way backwards (`spread`, `kernel_gradient`). Tiles are kept and used again: the second convolution of a picture
costs only its products. Against a plain convolution the results differ by rounding, a few millionths.

Pictures are (records, channels, height, width) as everywhere, best laid out with their channels last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch.nn import functional as F

TILE = 4
WIDE = 64  # channels from which the fewer multiplications outweigh the maps
CACHED = 2**17  # numbers of pictures that are cut at a time; their tiles hold 36 for 16
ROOT = 0.5**0.5
POINTS = (0.0, ROOT, -ROOT, 1 / ROOT, -1 / ROOT)  # and infinity; whole numbers would round twice as much


@dataclass(frozen=True)
class Tiles:
    """Pictures as 36 matrices (tiles of all records, channels), and how many records of what size they are."""

    values: torch.Tensor
    size: tuple[int, int, int]


def fits(weight: torch.Tensor, padding: int, height: int, width: int) -> bool:
    """Whether this convolution (of stride 1) can be done here and is worth it."""
    wide = weight.shape[2:] == (3, 3) and min(weight.shape[:2]) >= WIDE
    return wide and padding == 1 and height % TILE == width % TILE == 0 and weight.device.type == "cpu"


def cut(x: torch.Tensor) -> Tiles:
    """The tiles of pictures that are to be convolved with a border of one zero."""
    n, c, h, w = x.shape
    side, per_record = TILE + 2, h // TILE * (w // TILE) * c
    values = x.new_empty(side * side, n * per_record)
    at_once = max(1, CACHED // max(1, c * h * w))
    for start in range(0, n, at_once):
        framed = F.pad(x[start : start + at_once].permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
        record, row, column, _ = framed.stride()
        pixels = framed.as_strided(
            (side, side, len(framed), h // TILE, w // TILE, c), (row, column, record, TILE * row, TILE * column, 1)
        )
        own = values[:, start * per_record : (start + len(framed)) * per_record]
        torch.mm(_both("input", x), pixels.reshape(side * side, -1), out=own)
    return Tiles(values.view(side * side, -1, c), (n, h, w))


def kernel(weight: torch.Tensor) -> torch.Tensor:
    """A kernel (out, in, 3, 3) as 36 matrices (in, out)."""
    out, inputs = weight.shape[:2]
    return (_both("kernel", weight) @ weight.permute(2, 3, 1, 0).reshape(9, -1)).view(-1, inputs, out)


def turned(weight: torch.Tensor) -> torch.Tensor:
    """The kernel of the transposed convolution."""
    return kernel(weight.transpose(0, 1).flip(2, 3))


def join(products: torch.Tensor, size: tuple[int, int, int]) -> torch.Tensor:
    """The pictures that products of tiles and kernels stand for."""
    n, h, w = size
    parts = (_both("output", products) @ products.view(len(products), -1)).view(TILE, TILE, n, h // TILE, w // TILE, -1)
    shape = (n, parts.shape[-1], h, w)
    made = torch.empty(shape, dtype=products.dtype, device=products.device, memory_format=torch.channels_last)
    made.permute(0, 2, 3, 1).view(n, h // TILE, TILE, w // TILE, TILE, -1).copy_(parts.permute(2, 3, 0, 4, 1, 5))
    return made


def spread(cotangent: torch.Tensor) -> torch.Tensor:
    """The cotangent of a convolution, as 36 matrices (tiles of all records, channels)."""
    n, c, h, w = cotangent.shape
    parts = cotangent.permute(0, 2, 3, 1).reshape(n, h // TILE, TILE, w // TILE, TILE, c).permute(2, 4, 0, 1, 3, 5)
    made = _both("output", cotangent).T @ parts.reshape(TILE * TILE, -1)
    return made.view(len(made), -1, c)


def kernel_gradient(seen: Tiles, spread_cotangent: torch.Tensor) -> torch.Tensor:
    """The gradient by the kernel (out, in, 3, 3), summed over the records."""
    products = seen.values.mT @ spread_cotangent
    made = _both("kernel", products).T @ products.view(len(products), -1)
    return made.view(3, 3, *products.shape[1:]).permute(3, 2, 0, 1)


def kernel_gradients(seen: Tiles, spread_cotangent: torch.Tensor) -> torch.Tensor:
    """The gradient by the kernel of each record, as (records, 3, 3, in, out)."""
    count = seen.size[0]
    inputs, cotangents = (t.view(len(t), count, -1, t.shape[-1]) for t in (seen.values, spread_cotangent))
    found = inputs.new_empty(count, 9, inputs.shape[-1] * cotangents.shape[-1])
    down = _both("kernel", inputs).T
    products = inputs.new_empty(len(inputs), inputs.shape[-1], cotangents.shape[-1])
    for record in range(count):  # one at a time: its products stay in the cache
        torch.bmm(inputs[:, record].mT, cotangents[:, record], out=products)
        torch.mm(down, products.view(len(products), -1), out=found[record])
    return found.view(count, 3, 3, inputs.shape[-1], cotangents.shape[-1])


def by_patches(x: torch.Tensor, weight: torch.Tensor, padding: tuple[int, int]) -> torch.Tensor:
    """The convolution of pictures of few channels, channels last."""
    n, _, h, w = x.shape
    values = F.unfold(x, 3, padding=padding).mT @ weight.flatten(1).T
    return values.view(n, h + 2 * padding[0] - 2, w + 2 * padding[1] - 2, -1).permute(0, 3, 1, 2)


def patch_gradients(x: torch.Tensor, cotangent: torch.Tensor, padding: tuple[int, int]) -> torch.Tensor:
    """The gradient by the kernel of each record, as (records, out, 3, 3, in)."""
    count, channels = x.shape[:2]
    high, wide = padding
    framed = F.pad(x.permute(0, 2, 3, 1), (0, 0, wide, wide, high, high)).contiguous()
    cotangents = cotangent.permute(0, 2, 3, 1).flatten(1, 2)
    found = x.new_empty(count, cotangents.shape[2], 9 * channels)
    for record in range(count):  # one at a time: its patches stay in the cache
        patches = framed[record].unfold(0, 3, 1).unfold(1, 3, 1).permute(0, 1, 3, 4, 2)
        torch.mm(cotangents[record].T, patches.reshape(-1, 9 * channels), out=found[record])
    return found.view(count, -1, 3, 3, channels)


def reference(x: torch.Tensor, weight: torch.Tensor, padding: tuple[int, int] = (1, 1)) -> torch.Tensor:
    """The convolution that all of the above are, forward or backward, for all records or for each."""
    return F.conv2d(x, weight, padding=padding)


def _both(name: str, like: torch.Tensor) -> torch.Tensor:
    return _maps(like.dtype)[name]


@cache
def _maps(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The maps for both directions of a picture at once: Toom and Cook's, which evaluate polynomials at points."""
    last, whole = len(POINTS), np.eye(len(POINTS) + 1)
    pixels, kernel, output = np.zeros((last + 1, last + 1)), whole[:, -3:].copy(), whole[-TILE:].copy()
    for i, point in enumerate(POINTS):
        others = [p for p in POINTS if p != point]
        pixels[i, :last] = np.poly(others)[::-1]
        kernel[i] = point ** np.arange(3) / np.prod(point - np.array(others))
        output[:, i] = point ** np.arange(TILE)
    pixels[last] = np.poly(POINTS)[::-1]
    ways = {"input": pixels, "kernel": kernel, "output": output}
    return {name: torch.from_numpy(np.kron(way, way)).to(dtype) for name, way in ways.items()}
