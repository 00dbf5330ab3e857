"""How a network's gradient on a few images answers to the images, without a graph: two passes written out by hand.

Gradient matching needs d D(g(x)) / dx, where g(x) is the gradient of the loss by the weights. With v = dD/dg held
fixed this is the derivative of the loss's gradient *by the images* as the weights move along v, because derivatives
commute. So one ordinary pass gives g, and one pass of tangents (forward with v beside the weights, then backward)
gives the answer. Nothing is recorded; the first block is done at once (`first_block`); wide convolutions share their
tiles (`fast_conv`), the others run as forward convolutions, which are the fastest a CPU has; norm, ReLU and pooling are
done together (`plane_norm`); and biases of convolutions are left out, because the norms take them away again.

Only for networks like FedLAP's: convolutions, norms with one group a channel, ReLU, 2x2 average pooling, and a
linear layer at the end (`plain_convnet`), on images that the first block takes (`fits`). Everything else takes
autograd's way in `landscape`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.kernels import fast_conv, first_block, plane_norm
from prismfl.privacy.mechanisms import Params

Found = dict[str, torch.Tensor]
Seen = torch.Tensor | fast_conv.Tiles  # what a convolution looks at


@dataclass(frozen=True)
class Block:
    """Convolution, norm, ReLU and pooling; `conv` and `norm` are the prefixes of their parameters."""

    conv: str
    norm: str
    padding: int
    eps: float


@dataclass(frozen=True)
class Plain:
    """Such blocks in a row and a linear layer."""

    first: Block
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
    first, *rest = (b for b in blocks if b is not None)
    return Plain(first, tuple(rest), layers[-1][0])


def fits(net: Plain, params: Params, x: torch.Tensor) -> bool:
    """Whether the passes below take these images."""
    return first_block.fits(x, params[net.first.conv + ".weight"], net.first.padding)


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
    """What a block keeps from the ordinary pass: the activation of its convolution, what the norm keeps of both
    passes, and the cotangent of the convolution."""

    activation: Seen
    normed: plane_norm.Normed
    returned: plane_norm.Returned
    at_conv: Seen


@dataclass(frozen=True)
class Pass:
    """One ordinary pass: the gradient by the weights, and what the pass of tangents needs."""

    gradient: Found
    first: tuple[first_block.Seen, first_block.FirstReturned]
    kept: tuple[Kept, ...]
    features: torch.Tensor
    chances: torch.Tensor
    at_end: torch.Tensor


def ordinary(net: Plain, params: Params, x: torch.Tensor, y: torch.Tensor) -> Pass:
    """Mean cross entropy of the images: its gradient by the weights."""
    value, seen = first_block.forward(x, _own(net.first, params), padding=net.first.padding, eps=net.first.eps)
    forward = []
    for block in net.blocks:
        value, kept = _forward(block, params, value)
        forward.append(kept)
    features = value.flatten(1)
    weight = params[net.linear + ".weight"]
    chances = torch.softmax(F.linear(features, weight, params[net.linear + ".bias"]), 1)
    at_end = (chances - F.one_hot(y, chances.shape[1])) / len(y)
    gradient = {net.linear + ".weight": at_end.T @ features, net.linear + ".bias": at_end.sum(0)}
    cotangent, whole = (at_end @ weight).reshape(value.shape), []
    for block, half in zip(reversed(net.blocks), reversed(forward)):
        cotangent, kept_back, found = _backward(block, params, cotangent, half)
        whole.append(kept_back)
        gradient |= found
    returned = first_block.backward(cotangent, seen)
    gradient |= {
        net.first.norm + ".weight": returned.by_gain.sum(0),
        net.first.norm + ".bias": returned.by_shift.sum(0),
        net.first.conv + ".weight": first_block.as_kernel(returned.by_kernel.sum(0)),
        net.first.conv + ".bias": torch.zeros_like(params[net.first.conv + ".bias"]),
    }
    return Pass(gradient, (seen, returned), tuple(reversed(whole)), features, chances, at_end)


def by_images(net: Plain, params: Params, done: Pass, v: Params) -> torch.Tensor:
    """The derivative by the images of <v, gradient by the weights>."""
    seen, returned = done.first
    along = _own(net.first, v)
    value, first_moved = first_block.forward_along(seen, along)
    moving = []
    for block, kept in zip(net.blocks, done.kept):
        value, moved = _forward_tangent(block, params, v, value, kept)
        moving.append(moved)
    shape, value = value.shape, value.flatten(1)
    name = net.linear + ".weight"
    out = F.linear(value, params[name]) + F.linear(done.features, v[name], v[net.linear + ".bias"])
    chances = done.chances
    at_end = chances * (out - (chances * out).sum(1, keepdim=True)) / len(chances)
    cotangent = (at_end @ params[name] + done.at_end @ v[name]).reshape(shape)
    for block, kept, moved in zip(reversed(net.blocks), reversed(done.kept), reversed(moving)):
        cotangent = _backward_tangent(block, params, v, cotangent, kept, moved)
    return first_block.backward_along(cotangent, seen, returned, first_moved, along)


def reference(
    module: nn.Module, params: Params, x: torch.Tensor, y: torch.Tensor, v: Params
) -> tuple[Found, torch.Tensor]:
    """What `ordinary` finds and `by_images` gives, by autograd through autograd."""
    leaves, images = {k: p.detach().requires_grad_() for k, p in params.items()}, x.detach().requires_grad_()
    loss = F.cross_entropy(torch.func.functional_call(module, leaves, (images,)), y)
    gradient = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), create_graph=True)))
    along = torch.stack([(g * v[k]).sum() for k, g in gradient.items()]).sum()
    return {k: g.detach() for k, g in gradient.items()}, torch.autograd.grad(along, images)[0]


def _own(block: Block, params: Params) -> first_block.FirstWeights:
    return first_block.weights(
        *(params[name] for name in (block.conv + ".weight", block.norm + ".weight", block.norm + ".bias"))
    )


Half = tuple[Seen, plane_norm.Normed]


def _forward(block: Block, params: Params, x: torch.Tensor) -> tuple[torch.Tensor, Half]:
    weight = params[block.conv + ".weight"]
    seen = _seen(x, weight, block.padding)
    z = _convolved([(seen, weight)], block.padding)
    out, normed = plane_norm.forward(z, params[block.norm + ".weight"], params[block.norm + ".bias"], block.eps)
    return out, (seen, normed)


def _backward(block: Block, params: Params, cotangent: torch.Tensor, half: Half) -> tuple[torch.Tensor, Kept, Found]:
    seen, normed = half
    weight = params[block.conv + ".weight"]
    at_conv, returned = plane_norm.backward(cotangent, normed)
    seen_cotangent = _seen(at_conv, weight, block.padding)
    found = {
        block.norm + ".weight": returned.by_gain.sum((0, 1)),
        block.norm + ".bias": returned.by_shift.sum((0, 1)),
        block.conv + ".weight": _weight_gradient(seen, at_conv, weight, block.padding),
        block.conv + ".bias": torch.zeros_like(params[block.conv + ".bias"]),
    }
    return _transposed([(seen_cotangent, weight)], block.padding), Kept(seen, normed, returned, seen_cotangent), found


def _forward_tangent(
    block: Block, params: Params, v: Params, moving: torch.Tensor, kept: Kept
) -> tuple[torch.Tensor, plane_norm.Moved]:
    weight = params[block.conv + ".weight"]
    looks = [(kept.activation, v[block.conv + ".weight"]), (_seen(moving, weight, block.padding), weight)]
    z = _convolved(looks, block.padding)
    return plane_norm.forward_along(z, kept.normed, v[block.norm + ".weight"], v[block.norm + ".bias"])


def _backward_tangent(
    block: Block, params: Params, v: Params, cotangent: torch.Tensor, kept: Kept, moved: plane_norm.Moved
) -> torch.Tensor:
    weight = params[block.conv + ".weight"]
    out = plane_norm.backward_along(cotangent, kept.normed, kept.returned, moved, v[block.norm + ".weight"])
    looks = [(_seen(out, weight, block.padding), weight), (kept.at_conv, v[block.conv + ".weight"])]
    return _transposed(looks, block.padding)


def _seen(x: torch.Tensor, weight: torch.Tensor, padding: int) -> Seen:
    return fast_conv.cut(x) if fast_conv.fits(weight, padding, *x.shape[2:]) else x


def _convolved(looks: Sequence[tuple[Seen, torch.Tensor]], padding: int) -> torch.Tensor:
    """The sum of the convolutions of what is seen, each with its own weights."""
    return _summed(looks, fast_conv.kernel, lambda x, weight: F.conv2d(x, weight, padding=padding))


def _transposed(looks: Sequence[tuple[Seen, torch.Tensor]], padding: int) -> torch.Tensor:
    """The sum of the transposed convolutions."""
    return _summed(looks, fast_conv.turned, lambda x, weight: transposed(x, weight, padding))


def _summed(
    looks: Sequence[tuple[Seen, torch.Tensor]],
    kernel: Callable[[torch.Tensor], torch.Tensor],
    plain: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    products: torch.Tensor | None = None
    size = None
    for seen, weight in looks:
        if isinstance(seen, fast_conv.Tiles):
            size, one = seen.size, (seen.values, kernel(weight))
            products = torch.bmm(*one) if products is None else products.baddbmm_(*one)
        else:
            products = plain(seen, weight) if products is None else products.add_(plain(seen, weight))
    assert products is not None
    return products if size is None else fast_conv.join(products, size)


def transposed(value: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    """The transposed convolution, as a forward convolution with the kernel turned round."""
    cut = max(0, padding - 2)
    value = value[:, :, cut : value.shape[2] - cut, cut : value.shape[3] - cut]
    return F.conv2d(value, weight.transpose(0, 1).flip(2, 3).contiguous(), padding=max(0, 2 - padding))


def _weight_gradient(seen: Seen, cotangent: torch.Tensor, weight: torch.Tensor, padding: int) -> torch.Tensor:
    if isinstance(seen, fast_conv.Tiles):
        return fast_conv.kernel_gradient(seen, fast_conv.spread(cotangent))
    _, found, _ = torch.ops.aten.convolution_backward(
        cotangent, seen, weight, None, [1, 1], [padding, padding], [1, 1], False, [0, 0], 1, [False, True, False]
    )
    made: torch.Tensor = found
    return made
