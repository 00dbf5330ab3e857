"""A public encoder that tests can have in no time: two layers of fixed random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.nets.encoders.base import Encoder


class TinyEncoder(Encoder):
    """A convolution with pooled maps, and a linear layer on them."""

    name = "tiny"
    layers: tuple[str, ...] = ("maps", "last")
    trained_on = "nothing"

    def __init__(self, channels: int = 1, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.kernel = nn.Parameter(torch.randn(6, channels, 3, 3, generator=draw), requires_grad=False)
        self.matrix = nn.Parameter(torch.randn(17, 24, generator=draw), requires_grad=False)

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both layers."""
        maps = F.adaptive_avg_pool2d(F.relu(F.conv2d(images, self.kernel, padding=1)), 2).flatten(1)
        return {"maps": maps, "last": F.relu(F.linear(maps, self.matrix))}
