"""Small encoders as users bring them; and bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from prismfl.nets.encoders.base import Encoder

NUMBER = 3


class Maps(nn.Module):
    """A convolution's maps, and their squares' mean as rows."""

    trained_on = "a leaflet"

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3)
        assert self.conv.bias is not None
        with torch.no_grad():
            self.conv.bias.fill_(0.1)
            self.conv.weight.copy_(torch.linspace(-1, 1, self.conv.weight.numel()).reshape(self.conv.weight.shape))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        maps = self.conv(x)
        return {"maps": maps, "rows": maps.square().mean((2, 3))}


class Own(Encoder):
    """Somebody's own subclass."""

    name, layers, trained_on = "own", ("mean",), "nothing"

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"mean": images.mean((2, 3))}


class Bad(nn.Module):
    """Goes wrong in a way of its own."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.calls = how, 0

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        rows = x.flatten(1)[:, :7]
        return {
            "nan": rows / 0 - torch.inf,
            "width": rows[:, : 2 + self.calls],
            "batch": rows - rows.mean(0),
            "random": rows + torch.rand(()),
            "count": rows[1:],
            "shape": x.flatten(),
            "whole": rows.long(),
            "words": "words",
            "empty": {},
            "wide": rows.repeat(1, 20_000),
            "layers": {f"layer-{self.calls}": rows},
        }[self.how]


def build() -> nn.Module:
    return Maps()


def build_own() -> Encoder:
    return Own()


def build_deep() -> nn.Module:
    """Needs images of 33 pixels."""
    return nn.Sequential(nn.Conv2d(1, 2, 33), nn.ReLU())


def build_nan() -> nn.Module:
    return Bad("nan")


def build_text() -> str:
    return "no module"


def scripted(path: Path) -> Path:
    """A TorchScript file of `Maps`."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(Maps(), torch.rand(2, 1, 8, 8), strict=False), path)  # type: ignore[no-untyped-call]
    return path
