"""Differentiable siamese augmentation (https://arxiv.org/abs/2102.08259): one change for records and images.

Each call draws one operation and one set of numbers from a generator of its own, never from the one that noise comes
from. A view changes every image by itself, so it may stand before a per-record gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

View = Callable[[torch.Tensor], torch.Tensor]
Make = Callable[[list[float]], View]


def _moved(matrix: list[list[float]]) -> View:
    def view(x: torch.Tensor) -> torch.Tensor:
        theta = torch.tensor(matrix, dtype=x.dtype, device=x.device).expand(len(x), 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=True)
        return F.grid_sample(x, grid, align_corners=True)

    return view


def _scale(u: list[float]) -> View:
    sx, sy = (1.2 ** (2 * v - 1) for v in u[:2])
    return _moved([[sx, 0.0, 0.0], [0.0, sy, 0.0]])


def _rotate(u: list[float]) -> View:
    angle = math.radians(15.0) * (2 * u[0] - 1)
    return _moved([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])


def _crop(u: list[float]) -> View:
    return _moved([[1.0, 0.0, 0.25 * (2 * u[0] - 1)], [0.0, 1.0, 0.25 * (2 * u[1] - 1)]])


def _cutout(u: list[float]) -> View:
    def view(x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[-2:]
        top, left = int(u[0] * h), int(u[1] * w)
        mask = torch.ones(h, w, dtype=x.dtype, device=x.device)
        mask[max(0, top - h // 4) : top + h // 4, max(0, left - w // 4) : left + w // 4] = 0.0
        return x * mask

    return view


def _flip(u: list[float]) -> View:
    return (lambda x: x.flip(-1)) if u[0] < 0.5 else (lambda x: x)


def _colour(u: list[float]) -> View:
    def view(x: torch.Tensor) -> torch.Tensor:
        x = x + (u[0] - 0.5)
        grey = x.mean(1, keepdim=True)
        x = (x - grey) * (2.0 * u[1]) + grey
        mean = x.mean((1, 2, 3), keepdim=True)
        return (x - mean) * (u[2] + 0.5) + mean

    return view


OPERATIONS: Mapping[str, Make] = {
    "colour": _colour,
    "crop": _crop,
    "cutout": _cutout,
    "flip": _flip,
    "scale": _scale,
    "rotate": _rotate,
}


def draw(operations: tuple[str, ...], generator: torch.Generator) -> View | None:
    """One of the operations with its numbers; None where there is nothing to choose from."""
    if not operations:
        return None
    which = int(torch.randint(len(operations), (1,), generator=generator))
    numbers: list[float] = torch.rand(3, generator=generator).tolist()
    return OPERATIONS[operations[which]](numbers)


class BehindView(nn.Module):
    """A network behind a view, for per-record gradients. Not a plain sequence, so each record goes through alone."""

    def __init__(self, view: View, net: nn.Module) -> None:
        super().__init__()
        self.view, self.net = view, net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The network's output on the changed image."""
        out: torch.Tensor = self.net(self.view(x))
        return out
