"""How a network's gradient on a few images answers to the images, without a graph: two passes written out by hand.

Gradient matching needs d D(g(x)) / dx, where g(x) is the gradient of the loss by the weights. With v = dD/dg held
fixed this is the derivative of the loss's gradient *by the images* as the weights move along v, because derivatives
commute. So one ordinary pass gives g, and one pass of tangents (forward with v beside the weights, then backward)
gives the answer. Nothing is recorded; every convolution by transposed weights runs as a forward convolution, which is
the fastest one a CPU has; and norm, ReLU and pooling are a few vectorised sums.

Only for networks like FedLAP's: convolutions, norms with one group a channel, ReLU, 2x2 average pooling, and a
linear layer at the end (`plain_convnet`). Everything else takes autograd's way in `landscape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

Params = Mapping[str, torch.Tensor]
Found = dict[str, torch.Tensor]
PLANE = (2, 3)
FEW = 8  # channels of images: a matrix product is faster there than a convolution


@dataclass(frozen=True)
class Block:
    """Convolution, norm, ReLU and pooling; `conv` and `norm` are the prefixes of their parameters."""

    conv: str
    norm: str
    padding: int
    eps: float


@dataclass(frozen=True)
class Plain:
    """A sequence of such blocks and a linear layer."""

    blocks: tuple[Block, ...]
    linear: str


def plain_convnet(module: nn.Module) -> Plain | None:
    """The network as blocks if it is one that can be done by hand, otherwise None."""
    layers = list(module.named_children()) if type(module) is nn.Sequential else []
    if len(layers) < 6 or len(layers) % 4 != 2 or type(layers[-1][1]) is not nn.Linear:
        return None
    blocks = [_block(layers[i : i + 4]) for i in range(0, len(layers) - 2, 4)]
    if any(b is None for b in blocks) or type(layers[-2][1]) is not nn.Flatten or layers[-1][1].bias is None:
        return None
    return Plain(tuple(b for b in blocks if b is not None), layers[-1][0])


def _block(layers: Sequence[tuple[str, nn.Module]]) -> Block | None:
    (conv_name, conv), (norm_name, norm), (_, relu), (_, pool) = layers
    if not (type(conv) is nn.Conv2d and type(norm) is nn.GroupNorm and type(relu) is nn.ReLU):
        return None
    simple = conv.kernel_size == (3, 3) and conv.stride == (1, 1) and conv.dilation == (1, 1) and conv.groups == 1
    zeros = conv.padding_mode == "zeros" and conv.padding in ((1, 1), (3, 3)) and conv.bias is not None
    own_groups = norm.num_groups == norm.num_channels == conv.out_channels and norm.affine
    halves = type(pool) is nn.AvgPool2d and pool.kernel_size == 2 and pool.stride == 2 and pool.padding == 0
    return (
        Block(conv_name, norm_name, int(conv.padding[0]), norm.eps)
        if simple and zeros and own_groups and halves
        else None
    )


@dataclass(frozen=True)
class Kept:
    """What a block keeps from the ordinary pass: inputs, normalised values, their scale, what ReLU let through; then
    what came back to the norm, that part of it along the normalised values and the rest, and to the convolution."""

    went_in: torch.Tensor
    normal: torch.Tensor
    scale: torch.Tensor
    open: torch.Tensor
    at_norm: torch.Tensor
    along: torch.Tensor
    free: torch.Tensor
    at_conv: torch.Tensor


@dataclass(frozen=True)
class Pass:
    """One ordinary pass: the gradient by the weights, and what the pass of tangents needs."""

    gradient: Found
    kept: tuple[Kept, ...]
    features: torch.Tensor
    chances: torch.Tensor
    at_end: torch.Tensor


def ordinary(net: Plain, params: Params, x: torch.Tensor, y: torch.Tensor) -> Pass:
    """Mean cross entropy of the images: its gradient by the weights."""
    forward, value = [], x
    for block in net.blocks:
        value, kept = _forward(block, params, value)
        forward.append(kept)
    features = value.flatten(1)
    weight = params[net.linear + ".weight"]
    chances = torch.softmax(F.linear(features, weight, params[net.linear + ".bias"]), 1)
    at_end = (chances - F.one_hot(y, chances.shape[1])) / len(y)
    gradient = {net.linear + ".weight": at_end.T @ features, net.linear + ".bias": at_end.sum(0)}
    back, whole = (at_end @ weight).reshape(value.shape), []
    for i in reversed(range(len(net.blocks))):
        back, seen, found = _backward(net.blocks[i], params, back, forward[i], first=i == 0)
        whole.append(seen)
        gradient |= found
    return Pass(gradient, tuple(reversed(whole)), features, chances, at_end)


def by_images(net: Plain, params: Params, done: Pass, v: Params) -> torch.Tensor:
    """The derivative by the images of <v, gradient by the weights>."""
    value: torch.Tensor | None = None
    moving = []
    for block, kept in zip(net.blocks, done.kept):
        value, moved = _forward_tangent(block, params, v, value, kept)
        moving.append(moved)
    assert value is not None
    shape, value = value.shape, value.flatten(1)
    name = net.linear + ".weight"
    out = F.linear(value, params[name]) + F.linear(done.features, v[name], v[net.linear + ".bias"])
    chances = done.chances
    at_end = chances * (out - (chances * out).sum(1, keepdim=True)) / len(chances)
    back = (at_end @ params[name] + done.at_end @ v[name]).reshape(shape)
    for i in reversed(range(len(net.blocks))):
        back = _backward_tangent(net.blocks[i], params, v, back, done.kept[i], moving[i])
    return back


Half = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Moved = tuple[torch.Tensor, torch.Tensor]


def _forward(block: Block, params: Params, x: torch.Tensor) -> tuple[torch.Tensor, Half]:
    z = F.conv2d(x, params[block.conv + ".weight"], params[block.conv + ".bias"], padding=block.padding)
    z.sub_(z.mean(PLANE, keepdim=True))
    scale = torch.rsqrt((z * z).mean(PLANE, keepdim=True) + block.eps)
    normal = z.mul_(scale)
    out = torch.addcmul(_channels(params[block.norm + ".bias"]), normal, _channels(params[block.norm + ".weight"]))
    is_open = (out > 0).to(out.dtype)
    return _pool(out.mul_(is_open)), (x, normal, scale, is_open)


def _backward(
    block: Block, params: Params, back: torch.Tensor, half: Half, *, first: bool
) -> tuple[torch.Tensor, Kept, Found]:
    x, normal, scale, is_open = half
    weight, gain = params[block.conv + ".weight"], params[block.norm + ".weight"]
    at_norm = _unpool(back, is_open)
    sums, along = at_norm.sum(PLANE, keepdim=True), (at_norm * normal).sum(PLANE, keepdim=True)
    count = at_norm[0, 0].numel()
    along = along / count
    free = torch.addcmul(at_norm - sums / count, normal, along, value=-1.0)
    at_conv = free * (_channels(gain) * scale)
    found = {
        block.norm + ".weight": (along * count).sum((0, 2, 3)),
        block.norm + ".bias": sums.sum((0, 2, 3)),
        block.conv + ".weight": _weight_gradient(x, at_conv, weight, block.padding),
        block.conv + ".bias": at_conv.sum((0, 2, 3)),
    }
    before = back if first else transposed(at_conv, weight, block.padding)
    return before, Kept(x, normal, scale, is_open, at_norm, along, free, at_conv), found


def _forward_tangent(
    block: Block, params: Params, v: Params, moving: torch.Tensor | None, kept: Kept
) -> tuple[torch.Tensor, Moved]:
    z = F.conv2d(kept.went_in, v[block.conv + ".weight"], v[block.conv + ".bias"], padding=block.padding)
    if moving is not None:
        z += F.conv2d(moving, params[block.conv + ".weight"], padding=block.padding)
    along = (z * kept.normal).mean(PLANE, keepdim=True)
    normal = z.sub_(z.mean(PLANE, keepdim=True)).addcmul_(kept.normal, along, value=-1.0).mul_(kept.scale)
    out = torch.addcmul(_channels(v[block.norm + ".bias"]), kept.normal, _channels(v[block.norm + ".weight"]))
    out.addcmul_(normal, _channels(params[block.norm + ".weight"])).mul_(kept.open)
    return _pool(out), (normal, along)


def _backward_tangent(
    block: Block, params: Params, v: Params, back: torch.Tensor, kept: Kept, moved: Moved
) -> torch.Tensor:
    normal, drift = moved
    gain, weight = _channels(params[block.norm + ".weight"]), params[block.conv + ".weight"]
    at_norm = _unpool(back, kept.open)
    along = (at_norm * kept.normal).mean(PLANE, keepdim=True)
    along += (kept.at_norm * normal).mean(PLANE, keepdim=True)
    out = at_norm.sub_(at_norm.mean(PLANE, keepdim=True))
    out.addcmul_(normal, kept.along, value=-1.0).addcmul_(kept.normal, along, value=-1.0).mul_(gain * kept.scale)
    out.addcmul_(kept.free, kept.scale * (_channels(v[block.norm + ".weight"]) - gain * kept.scale * drift))
    result = transposed(out, weight, block.padding)
    return result.add_(transposed(kept.at_conv, v[block.conv + ".weight"], block.padding))


def transposed(value: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    """The transposed convolution, as a forward convolution with the kernel turned round."""
    if weight.shape[1] < FEW:
        h, w = value.shape[2:]
        parts = weight.flatten(1).T @ value.flatten(2)
        return F.fold(parts, (h + 2 - 2 * padding, w + 2 - 2 * padding), 3, padding=padding)
    cut = max(0, padding - 2)
    value = value[:, :, cut : value.shape[2] - cut, cut : value.shape[3] - cut]
    return F.conv2d(value, weight.transpose(0, 1).flip(2, 3).contiguous(), padding=max(0, 2 - padding))


def _weight_gradient(x: torch.Tensor, back: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    _, found, _ = torch.ops.aten.convolution_backward(
        back, x, weight, None, [1, 1], [padding, padding], [1, 1], False, [0, 0], 1, [False, True, False]
    )
    made: torch.Tensor = found
    return made


def _channels(value: torch.Tensor) -> torch.Tensor:
    return value[:, None, None]


def _pool(value: torch.Tensor) -> torch.Tensor:
    """2x2 means, an odd last row or column left out: pairs of rows are added, pairs of columns by a matrix product."""
    n, c, h, w = value.shape
    half = h // 2
    rows = value[:, :, : 2 * half].reshape(n, c, half, 2, w)
    return (rows[:, :, :, 0] + rows[:, :, :, 1]) @ _pairs(w, value)


def _unpool(back: torch.Tensor, is_open: torch.Tensor) -> torch.Tensor:
    """What comes back through the pooling and the ReLU."""
    n, c, h, w = is_open.shape
    wide = back @ _pairs(w, back).T
    half = h // 2
    if h % 2 == 0:
        return (is_open.view(n, c, half, 2, w) * wide.unsqueeze(3)).view(n, c, h, w)
    whole = torch.zeros_like(is_open)
    whole[:, :, : 2 * half] = wide.repeat_interleave(2, 2)
    return whole.mul_(is_open)


def _pairs(width: int, like: torch.Tensor) -> torch.Tensor:
    pairs = torch.zeros(width, width // 2, dtype=like.dtype, device=like.device)
    index = torch.arange(2 * (width // 2), device=like.device)
    pairs[index, index // 2] = 0.25
    return pairs
