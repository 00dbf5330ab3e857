"""The scattering transform: moduli of Morlet wavelets, averaged; no training, no package, the same everywhere.

Paper: Bruna and Mallat, "Invariant Scattering Convolution Networks", https://arxiv.org/abs/1203.1513. Order 0 is the
blurred image, order 1 |x * psi|, order 2 ||x * psi| * psi'| with a wider psi', each under Gaussian windows on a small
grid. Maps are sampled as coarsely as their wavelet is wide, so wider wavelets cost no more than narrow ones.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import torch
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder, fitted
from prismfl.nets.encoders.names import SCATTERING

ANGLES = 8
LEAST_SIDE, MOST_SIDE = 8, 64  # larger images are brought to the latter
WIDTH, FREQUENCY, SLANT = 0.8, 0.75 * math.pi, 4.0 / ANGLES
REACH = 2.5  # a wavelet is cut off at so many widths
MOST_NUMBERS = 2048  # the grid is as fine as this allows
TINY = 1e-12


class Scattering(Encoder):
    """Orders 0, 1 and 2 on a grid; each number of an image in [0, 1] lies in [0, 1]."""

    name = SCATTERING
    layers = ("order0", "order1", "order2")
    trained_on = "nothing: fixed wavelets"

    def __init__(self, side: int | None = None) -> None:
        super().__init__()
        self.side = side

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Rows of images of any channels; each channel is looked at by itself. Differentiable in the images."""
        count, channels, height, width = images.shape
        if min(height, width) < LEAST_SIDE:
            raise UserError(
                f"Encoder '{SCATTERING}' needs images of at least {LEAST_SIDE} x {LEAST_SIDE} pixels, got {height} x "
                f"{width}; '{SCATTERING}@28' brings them to 28."
            )
        if max(height, width) > MOST_SIDE:
            images = fitted(images, channels=None, side=MOST_SIDE)
            height, width = images.shape[2:]
        octaves = octaves_of(min(height, width))
        x = images.reshape(count * channels, 1, height, width)
        first = [(_moduli(x, j), j) for j in range(octaves)]
        # Relative to the maps of octave j, which are sampled 2^j apart, a wavelet r octaves wider is that of octave r.
        second = [(_moduli(maps, r), j + r) for maps, j in first for r in range(1, octaves - j)]
        grid, sides = grid_of(octaves, channels), (height, width)
        return {
            name: torch.cat([_pooled(maps, sides, grid, octave) for maps, octave in found], 1).reshape(count, -1)
            for name, found in (("order0", [(x, 0)]), ("order1", first), ("order2", second))
        }

    @property
    def digest(self) -> str:
        """Of the words that define it: its numbers follow from them, and their last bits from the machine."""
        numbers = (ANGLES, WIDTH, FREQUENCY, SLANT, REACH, MOST_SIDE, MOST_NUMBERS)
        words = (SCATTERING, self.layers, self.side, *numbers)
        return hashlib.sha256(repr(words).encode()).hexdigest()


def build(side: int | None = None) -> Scattering:
    """The transform, of images as they are or brought to a side."""
    return Scattering(side)


def octaves_of(side: int) -> int:
    """How many octaves of wavelets an image of this side has: 2 up to 45 pixels, then 3."""
    return max(2, min(3, round(math.log2(side)) - 3))


def grid_of(octaves: int, channels: int) -> int:
    """Windows along each side, so that all orders together have about MOST_NUMBERS numbers."""
    maps = channels * (1 + ANGLES * octaves + ANGLES**2 * octaves * (octaves - 1) // 2)
    return max(2, round(math.sqrt(MOST_NUMBERS / maps)))


def _moduli(maps: torch.Tensor, octave: int) -> torch.Tensor:
    """|maps * psi| for every angle, sampled 2^octave apart; each map of the input by itself."""
    filters = wavelets(octave).to(maps)
    reach, step = filters.shape[-1] // 2, 2**octave
    flat = F.pad(maps.reshape(-1, 1, *maps.shape[2:]), [reach] * 4, mode="replicate")
    both = F.conv2d(flat, filters, stride=step).square()
    found = (both[:, :ANGLES] + both[:, ANGLES:] + TINY).sqrt()
    return found.reshape(len(maps), -1, *found.shape[2:])


def _pooled(maps: torch.Tensor, sides: tuple[int, int], grid: int, octave: int) -> torch.Tensor:
    """Each map, sampled 2^octave apart, under Gaussian windows: (n, maps, grid * grid)."""
    rows, columns = (window(side, grid, octave).to(maps) for side in sides)
    return torch.einsum("gh,nmhw,kw->nmgk", rows, maps, columns).flatten(2)


@lru_cache(maxsize=16)
def wavelets(octave: int) -> torch.Tensor:
    """Morlet wavelets of every angle, real parts and then imaginary ones: no mean, and an absolute sum of 1."""
    width, frequency = WIDTH * 2**octave, FREQUENCY / 2**octave
    reach = math.ceil(REACH * width / SLANT)
    place = torch.arange(-reach, reach + 1, dtype=torch.float64)
    real, imaginary = [], []
    for i in range(ANGLES):
        angle = math.pi * i / ANGLES
        along = place[None, :] * math.cos(angle) + place[:, None] * math.sin(angle)
        across = place[:, None] * math.cos(angle) - place[None, :] * math.sin(angle)
        bell = torch.exp(-(along**2 + (SLANT * across) ** 2) / (2 * width**2))
        wave = torch.polar(bell, frequency * along)
        wave = wave - bell * (wave.sum() / bell.sum())
        wave = wave / wave.abs().sum()
        real.append(wave.real)
        imaginary.append(wave.imag)
    return torch.stack([*real, *imaginary])[:, None].float()


@lru_cache(maxsize=64)
def window(side: int, grid: int, octave: int) -> torch.Tensor:
    """(grid, samples): Gaussian weights around the middle of each field of a line of pixels, half a field wide, at
    every 2^octave-th pixel; each row has the sum 1."""
    place = torch.arange(0, side, 2**octave, dtype=torch.float64) + 0.5
    middle = (torch.arange(grid, dtype=torch.float64) + 0.5) * side / grid
    weights = torch.exp(-0.5 * ((place[None, :] - middle[:, None]) * 2 * grid / side) ** 2)
    return (weights / weights.sum(1, keepdim=True)).float()
