"""The layers of wide convolutional networks, where the gradients of each record are worth some care.

Convolutions go by tiles or patches (`fast_conv`), and norm, ReLU and pooling together (`plane_norm`); pictures have
their channels last. As in `per_record`, no layer looks at a record's neighbours, and the cotangent of a layer's
output is tapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.kernels import fast_conv, first_block, plane_norm
from prismfl.kernels.layer_gradients import Kernels, LayerGradients, Params, Rows, Tap, tapped

FEW_PIXELS = 100  # up to here the gradients of each record cost less by patches than by tiles


def simple(layer: nn.Conv2d) -> bool:
    """A 3x3 convolution of every pixel."""
    return layer.kernel_size == (3, 3) and layer.stride == layer.dilation == (1, 1)


def wide(layer: nn.Conv2d) -> bool:
    """A 3x3 convolution of every pixel, padded by one, with many channels on both sides."""
    return simple(layer) and layer.padding == (1, 1) and min(layer.weight.shape[:2]) >= fast_conv.WIDE


def convolution(layer: nn.Conv2d, prefix: str, *, own: Params, value: torch.Tensor) -> tuple[torch.Tensor, Tap]:
    """A convolution in a wide network: channels last, by tiles if the picture can be cut, otherwise by patches."""
    weight, bias, activation = own["weight"], own.get("bias"), value.detach()
    padding = int(layer.padding[0]), int(layer.padding[1])
    tiled = padding == (1, 1) and fast_conv.fits(weight, 1, *value.shape[2:])
    if tiled:
        seen = fast_conv.cut(activation)
        out = TiledConvolution.apply(value, weight, seen)  # type: ignore[no-untyped-call]
    elif value.requires_grad:
        out = F.conv2d(value, weight, padding=padding)
    else:
        out = fast_conv.by_patches(value, weight, padding)
    out = tapped(out if bias is None else out + bias[:, None, None])

    def make(cotangent: torch.Tensor) -> LayerGradients:
        by_bias = None if bias is None else cotangent.sum((2, 3))
        if tiled and activation[0, 0].numel() > FEW_PIXELS:
            return Kernels(prefix, fast_conv.kernel_gradients(seen, fast_conv.spread(cotangent)), (3, 2, 0, 1), by_bias)
        return Kernels(prefix, fast_conv.patch_gradients(activation, cotangent, padding), (0, 3, 1, 2), by_bias)

    return out, ([out], make)


class TiledConvolution(torch.autograd.Function):
    """A convolution by tiles; its input's cotangent goes by tiles as well."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor, seen: fast_conv.Tiles) -> torch.Tensor:
        """The convolution of an input that was cut into tiles (`seen`)."""
        ctx.save_for_backward(weight)
        return fast_conv.join(torch.bmm(seen.values, fast_conv.kernel(weight)), seen.size)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The input's cotangent; weights and tiles get none."""
        (weight,) = ctx.saved_tensors
        seen = fast_conv.cut(cotangents[0])
        return fast_conv.join(torch.bmm(seen.values, fast_conv.turned(weight)), seen.size), None, None


def is_block(layers: Sequence[nn.Module]) -> bool:
    """Convolution, norm with one group a channel, ReLU and 2x2 means."""
    if [type(m) for m in layers] != [nn.Conv2d, nn.GroupNorm, nn.ReLU, nn.AvgPool2d]:
        return False
    _, norm, _, pool = layers
    own_groups = isinstance(norm, nn.GroupNorm) and norm.affine and norm.num_groups == norm.num_channels
    return own_groups and isinstance(pool, nn.AvgPool2d) and repr(pool) == repr(nn.AvgPool2d(2))


def block(norm: nn.GroupNorm, prefix: str, *, own: Params, value: torch.Tensor) -> tuple[torch.Tensor, Tap]:
    """A norm with one group a channel, ReLU and pooling. Overwrites `value`, which its convolution does not need."""
    scales, shifts = (own[name].repeat(len(value), 1, 1).requires_grad_() for name in ("weight", "bias"))
    out = PlaneBlock.apply(value, scales, shifts, (own["weight"], own["bias"], norm.eps))  # type: ignore[no-untyped-call]
    return out, (
        [scales, shifts],
        lambda *rows: Rows({prefix + k: r.flatten(1) for k, r in zip(("weight", "bias"), rows)}),
    )


def starts(layers: Sequence[nn.Module], value: torch.Tensor) -> bool:
    """Whether these layers are a block that can be done at once, since nobody asks for a cotangent of the pictures."""
    conv = layers[0]
    if not (isinstance(conv, nn.Conv2d) and is_block(layers) and simple(conv) and conv.padding[0] == conv.padding[1]):
        return False
    return not value.requires_grad and first_block.fits(value, conv.weight, int(conv.padding[0]))


def start(layers: Sequence[tuple[str, nn.Module]], *, params: Params, value: torch.Tensor) -> tuple[torch.Tensor, Tap]:
    """The block that a network begins with."""
    (conv_name, conv), (norm_name, norm) = layers[:2]
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.GroupNorm)
    names = [conv_name + "weight", norm_name + "weight", norm_name + "bias"]
    own = first_block.weights(*(params[name].detach() for name in names))
    pooled, seen = first_block.forward(value, own, padding=int(conv.padding[0]), eps=norm.eps)

    def make(cotangent: torch.Tensor) -> LayerGradients:
        found = first_block.backward(cotangent, seen)
        return Rows(dict(zip(names, (first_block.as_kernel(found.by_kernel), found.by_gain, found.by_shift))))

    return tapped(pooled), ([pooled], make)


class PlaneBlock(torch.autograd.Function):
    """`plane_norm` with gradients by the scales and shifts of each record."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, scales: torch.Tensor, shifts: torch.Tensor, how: Any) -> torch.Tensor:
        """The block's pooled output; what `backward` needs is kept."""
        pooled, ctx.kept = plane_norm.forward(value.detach(), *how)
        return pooled

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        """Cotangents of the input, and of the scales and shifts of each record."""
        before, done = plane_norm.backward(cotangents[0], ctx.kept)
        return before, done.by_gain, done.by_shift, None


def reference(layers: Sequence[tuple[str, nn.Module]], *, params: Params, value: torch.Tensor) -> torch.Tensor:
    """What all of the above give: the layers as torch has them, one after the other."""
    for prefix, layer in layers:
        own = {name: params[prefix + name] for name, _ in layer.named_parameters()}
        value = torch.func.functional_call(layer, own, (value,))
    return value
