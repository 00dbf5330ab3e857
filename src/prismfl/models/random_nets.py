"""A bank of small random, untrained convolutional networks: many cheap and independent looks at an image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from prismfl.rng import Key


@dataclass(frozen=True, eq=False)
class RandomNet:
    """Three blocks of conv 3x3, instance norm, ReLU, average pooling; then a random projection.

    Standardised by public images; the answer has norm one.
    """

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    project: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize((_raw(x, self.layers, self.project) - self.mean) / self.std, dim=1)


def random_nets(public: torch.Tensor, *, count: int, width: int, features: int, key: Key) -> tuple[RandomNet, ...]:
    """`count` networks from a key, standardised on `public` images."""
    return tuple(_random_net(public, width=width, features=features, key=key.child(k)) for k in range(count))


def _random_net(public: torch.Tensor, *, width: int, features: int, key: Key) -> RandomNet:
    generator, channels, layers = key.torch(), public.shape[1], []
    for _ in range(3):
        weight = torch.randn(width, channels, 3, 3, generator=generator) * math.sqrt(2.0 / (9 * channels))
        layers.append((weight, 0.2 * torch.randn(width, generator=generator)))
        channels = width
    side = max(1, public.shape[2] // 8)
    project = torch.randn(width * side * side, features, generator=generator) / math.sqrt(width * side * side)
    fixed = tuple((w.to(public.device), b.to(public.device)) for w, b in layers)
    with torch.no_grad():
        raw = torch.cat([_raw(part, fixed, project.to(public.device)) for part in torch.split(public, 500)])
    return RandomNet(fixed, project.to(public.device), raw.mean(0), raw.std(0) + 1e-4)


def _raw(x: torch.Tensor, layers: tuple[tuple[torch.Tensor, torch.Tensor], ...], project: torch.Tensor) -> torch.Tensor:
    for weight, bias in layers:
        x = F.conv2d(x, weight, padding=1)
        x = F.relu(F.group_norm(x, x.shape[1], eps=1e-3) + bias[:, None, None])
        x = F.avg_pool2d(x, 2) if x.shape[-1] > 1 else x
    return x.flatten(1) @ project
