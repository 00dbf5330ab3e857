"""A bank of small random, untrained convolutional networks: many cheap and independent looks at an image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from prismfl.nets.augment import warp
from prismfl.nets.smaller import smaller
from prismfl.rng import Key

Layers = tuple[tuple[torch.Tensor, torch.Tensor], ...]


@dataclass(frozen=True, eq=False)
class RandomNet:
    """Three blocks of conv 3x3, instance norm, ReLU, average pooling; then random projections of the last maps.

    It looks through a fixed `view` (see `warp`), if there is one: private and synthetic images alike, so that a bank of
    them sees each image moved in many ways. Standardised by public images; the answer has norm one.
    """

    layers: Layers
    projections: tuple[torch.Tensor, ...]
    view: torch.Tensor | None
    mean: torch.Tensor
    std: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normed features of pictures."""
        return F.normalize((_raw(x, self.layers, self.projections, self.view) - self.mean) / self.std, dim=1)


def random_nets(
    public: torch.Tensor, *, count: int, width: int, features: int, depth: int = 1, views: float = 0.0, key: Key
) -> tuple[RandomNet, ...]:
    """`count` networks from a key, standardised on `public` images.

    Each answers from its last `depth` maps, and sees images moved by up to `views` of what `affine` moves them.
    """
    public = smaller(public)
    return tuple(
        _random_net(public, width=width, features=features, depth=depth, views=views, key=key.child(k))
        for k in range(count)
    )


def _random_net(public: torch.Tensor, *, width: int, features: int, depth: int, views: float, key: Key) -> RandomNet:
    generator, channels, sides, device = key.torch(), public.shape[1], list(public.shape[2:]), public.device
    layers, sizes = [], []
    for _ in range(3):
        weight = torch.randn(width, channels, 3, 3, generator=generator) * math.sqrt(2.0 / (9 * channels))
        layers.append((weight.to(device), 0.2 * torch.randn(width, generator=generator).to(device)))
        channels = width
        sides = [side // 2 for side in sides] if min(sides) > 1 else sides
        sizes.append(width * math.prod(sides))
    projections = tuple(
        (torch.randn(size, features, generator=generator) / math.sqrt(size)).to(device)
        for size in reversed(sizes[-depth:])
    )
    view = views * (2 * torch.rand(1, 6, generator=generator) - 1).to(device) if views else None
    with torch.no_grad():
        parts = [_raw(part, tuple(layers), projections, view) for part in torch.split(public, 500)]
    raw = torch.cat(parts)
    return RandomNet(tuple(layers), projections, view, raw.mean(0), raw.std(0) + 1e-4)


def _raw(
    x: torch.Tensor, layers: Layers, projections: tuple[torch.Tensor, ...], view: torch.Tensor | None
) -> torch.Tensor:
    x = smaller(x)
    maps = [x if view is None else warp(x, view.expand(len(x), 6))]
    for weight, bias in layers:
        x = F.conv2d(maps[-1], weight, padding=1)
        x = F.relu(F.group_norm(x, x.shape[1], eps=1e-3) + bias[:, None, None])
        maps.append(F.avg_pool2d(x, 2) if min(x.shape[2:]) > 1 else x)
    answers = [x.flatten(1) @ project for x, project in zip(reversed(maps), projections)]
    return torch.stack(answers).sum(0)
