"""Small random changes of images that keep their class: for training, and inside the matching."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def affine(x: torch.Tensor, generator: torch.Generator, *, flip: bool = False) -> torch.Tensor:
    """Each image turned (up to 15 degrees), scaled (15 %), shifted (7 % of the side) and sheared a little."""
    draws = torch.rand(len(x), 6, generator=generator, device=generator.device).to(x.device) * 2 - 1
    return warp(x, draws, flip=flip)


def warp(x: torch.Tensor, u: torch.Tensor, *, flip: bool = False) -> torch.Tensor:
    """`affine` by given numbers in [-1, 1], six per image: turn, scale, shift across and down, shear, mirror."""
    angle, scale, shear = 0.26 * u[:, 0], 1 + 0.15 * u[:, 1], 0.15 * u[:, 4]
    cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
    mirror = torch.where(u[:, 5] > 0, -1.0, 1.0) if flip else torch.ones_like(cos)
    rows = (
        torch.stack([cos * mirror, -sin + shear, 0.14 * u[:, 2]], 1),
        torch.stack([sin * mirror, cos, 0.14 * u[:, 3]], 1),
    )
    where = F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, where, align_corners=False, padding_mode="reflection" if x.shape[1] == 3 else "zeros")


def shift_and_flip(x: torch.Tensor, generator: torch.Generator, *, shift: int = 3) -> torch.Tensor:
    """Half the images mirrored, each moved by up to `shift` pixels over a reflected border."""
    n, channels, height, width = x.shape
    flip = torch.rand(n, generator=generator, device=generator.device).to(x.device) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(3), x)
    move = torch.randint(2 * shift + 1, (n, 2), generator=generator, device=generator.device).to(x.device)
    padded, line = F.pad(x, [shift] * 4, mode="reflect"), torch.arange(max(height, width), device=x.device)
    rows, cols = (move[:, :1] + line[:height])[:, None, :, None], (move[:, 1:] + line[:width])[:, None, None, :]
    image = torch.arange(n, device=x.device)[:, None, None, None]
    plane = torch.arange(channels, device=x.device)[None, :, None, None]
    return padded[image, plane, rows, cols]


def crops(images: torch.Tensor, *, least: float, generator: torch.Generator) -> torch.Tensor:
    """One random square crop of each image, at least `least` of its side, brought back to its size."""
    if least == 1:
        return images
    n = len(images)
    draws = torch.rand(n, 3, generator=generator, device=generator.device).to(images.device)
    size = least + (1 - least) * draws[:, 0]
    x, y = (1 - size) * (2 * draws[:, 1] - 1), (1 - size) * (2 * draws[:, 2] - 1)
    zero = torch.zeros_like(size)
    rows = (torch.stack([size, zero, x], 1), torch.stack([zero, size, y], 1))
    where = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, where, align_corners=False, padding_mode="reflection")


def blended(x: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """`count` mixtures of two of the images each, with every part of either as likely."""
    device = generator.device
    first, second = (torch.randint(0, len(x), (count,), generator=generator, device=device) for _ in range(2))
    part = torch.rand(count, 1, 1, 1, generator=generator, device=device).to(x.device)
    return part * x[first] + (1.0 - part) * x[second]
