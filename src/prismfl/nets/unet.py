"""A small U-Net for images of 8 to 64 pixels: two resolutions, conditioned on the class and the noise level.

Pixels are folded into patches of 2 x 2 first, which keeps most of the picture at a quarter of the work. No layer mixes
records (GroupNorm), so gradients of single records are well defined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.rng import Key

PATCH = 2
FREQUENCIES = 4


@dataclass(frozen=True)
class UNetShape:
    """The public structure of a network."""

    image: tuple[int, ...]
    classes: int
    width: int = 24

    @property
    def groups(self) -> int:
        """Groups of every norm: the largest divisor that the channels share with eight."""
        return math.gcd(self.width, 8)


class ResidualBlock(nn.Module):
    """Two convolutions around a shift that tells the class and the noise level, and a way past them."""

    def __init__(self, inputs: int, outputs: int, *, told: int, groups: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.GroupNorm(groups, inputs), nn.GroupNorm(groups, outputs)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shift = nn.Linear(told, outputs)
        self.past = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        """The input plus two convolutions of it, shifted by what is `told`."""
        h = self.first(F.silu(self.norm_in(x))) + self.shift(told)[:, :, None, None]
        out: torch.Tensor = self.past(x) + self.second(F.silu(self.norm_out(h)))
        return out


class UNet(nn.Module):
    """`forward(images, noise level, one-hot labels)`: as many numbers as pixels. The last layer starts at zero.

    Each class has a sketch, a learned picture that the network sees beside its input: few steps have to tell it what
    to draw.
    """

    def __init__(self, shape: UNetShape) -> None:
        super().__init__()
        width, groups, told = shape.width, shape.groups, 2 * shape.width
        patches = shape.image[0] * PATCH**2
        self.tell = nn.Linear(2 * FREQUENCIES + shape.classes, told)
        self.folded = (patches, shape.image[1] // PATCH, shape.image[2] // PATCH)
        self.sketch = nn.Linear(shape.classes, math.prod(self.folded), bias=False)
        nn.init.normal_(self.sketch.weight, std=0.1)
        self.stem = nn.Conv2d(2 * patches, width, 3, padding=1)
        self.fine = ResidualBlock(width, width, told=told, groups=groups)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.coarse = ResidualBlock(2 * width, 2 * width, told=told, groups=groups)
        self.middle = ResidualBlock(2 * width, 2 * width, told=told, groups=groups)
        self.up = nn.Conv2d(2 * width, width, 1)
        self.join = ResidualBlock(2 * width, width, told=told, groups=groups)
        self.norm = nn.GroupNorm(groups, width)
        self.out = nn.Conv2d(width, patches, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor, level: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The network's output for noisy images, their noise level and one-hot labels."""
        angles = level[:, None] * (2.0 ** torch.arange(FREQUENCIES, device=x.device) * (math.pi / 2))
        told = F.silu(self.tell(torch.cat([torch.cos(angles), torch.sin(angles), labels], 1)))
        sketch = self.sketch(labels).reshape(len(x), *self.folded)
        fine = self.fine(self.stem(torch.cat([F.pixel_unshuffle(x, PATCH), sketch], 1)), told)
        coarse = self.middle(self.coarse(self.down(fine), told), told)
        back = F.interpolate(self.up(coarse), size=fine.shape[2:])
        joined = self.join(torch.cat([fine, back], 1), told)
        out: torch.Tensor = F.pixel_shuffle(self.out(F.silu(self.norm(joined))), PATCH)
        return out


def build_unet(shape: UNetShape, key: Key) -> UNet:
    """A fresh network drawn from `key`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.integer())
        return UNet(shape)
