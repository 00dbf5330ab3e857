"""The first block of a network: convolution of a picture of few channels, norm, ReLU and 2x2 means, all at once.

A 3x3 patch of such a picture is a handful of numbers, from which a hundred channels are made. How a channel spreads
over a picture follows from the covariance of the patches, so convolution and norm together are one product, of the
patches and a kernel scaled for that picture. Backwards it is one product of the patches and what passed the ReLU, which
holds the gradients by kernel, gain and shift of each record. Moves along a direction of the weights (`along`) go the
same way. The hundred channels are only ever multiplied, cut off at zero and averaged.

Pixels are ordered by their place in the 2x2 square that is averaged, so that the four places are four equal parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from prismfl.kernels import plane_norm

FEW = 8  # channels of a picture


@dataclass(frozen=True)
class FirstWeights:
    """A kernel as (numbers of a patch, channels), and the norm's gain and shift; or a direction to move these in."""

    kernel: torch.Tensor
    gain: torch.Tensor
    shift: torch.Tensor


@dataclass(frozen=True)
class Seen:
    """What a pass forward leaves."""

    weights: FirstWeights
    patches: torch.Tensor  # (records, pixels, numbers of a patch, their mean taken away, and a one)
    spread: torch.Tensor  # (records, numbers of a patch, numbers of a patch): the covariance
    factor: torch.Tensor  # (records, 1, channels): what the norm multiplies by
    unit: torch.Tensor  # (records, numbers of a patch, channels): the kernel that gives normalised values
    out: torch.Tensor  # (records, pixels, channels): after the ReLU
    padding: int
    size: tuple[int, int]  # of the plane before the means

    def let_through(self, cotangent: torch.Tensor, part: slice) -> torch.Tensor:
        """The cotangent of the norm's output, for some records, from that of the means."""
        out = _four(self.out[part])
        each = cotangent[part, None].expand_as(out)
        passed: torch.Tensor = torch.ops.aten.threshold_backward(each, out, 0)
        return passed.flatten(1, 2)

    def pictures(self, pooled: torch.Tensor) -> torch.Tensor:
        """Rows a pixel as pictures, channels last in memory."""
        shape = len(pooled), self.size[0] // 2, self.size[1] // 2, pooled.shape[2]
        return pooled.view(shape).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class FirstReturned:
    """What a pass backward leaves: the cotangent of the means, the products of the patches and what passed the
    ReLU, and the gradients by kernel, gain and shift of each record."""

    cotangent: torch.Tensor
    products: torch.Tensor
    by_kernel: torch.Tensor
    by_gain: torch.Tensor
    by_shift: torch.Tensor


@dataclass(frozen=True)
class FirstMoved:
    """What a pass forward along a direction leaves: how `unit` moves, and the norm's factor as a share of itself."""

    unit: torch.Tensor
    drift: torch.Tensor


def fits(x: torch.Tensor, weight: torch.Tensor, padding: int) -> bool:
    """Whether a block that begins with this convolution (of stride 1) can be done here: not if a last odd row or column
    is left out of the means."""
    even = all((side + 2 * padding) % 2 == 0 for side in x.shape[2:])
    return weight.shape[1] < FEW and weight.shape[2:] == (3, 3) and even and x.device.type != "mps"


def weights(weight: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> FirstWeights:
    """From a kernel (out, in, 3, 3)."""
    return FirstWeights(weight.permute(2, 3, 1, 0).flatten(0, 2), gain, shift)


def as_kernel(values: torch.Tensor) -> torch.Tensor:
    """(..., numbers of a patch, channels) as (..., out, in, 3, 3)."""
    *some, numbers, channels = values.shape
    return values.view(*some, 3, 3, numbers // 9, channels).movedim((-1, -2), (-4, -3))


def forward(x: torch.Tensor, own: FirstWeights, *, padding: int, eps: float) -> tuple[torch.Tensor, Seen]:
    """The means."""
    patches, size = _patches(x, padding)
    centred = patches[..., :-1].double()  # the spread of a channel may be a small difference of large numbers
    spread = centred.mT @ centred / patches.shape[1]
    kernel = own.kernel.double()
    variance = (spread @ kernel).mul_(kernel).sum(1, keepdim=True).clamp_min_(0.0)
    factor = torch.rsqrt(variance + eps).to(x.dtype)
    unit = own.kernel * factor
    out = x.new_empty(*patches.shape[:2], unit.shape[2])
    seen = Seen(own, patches, spread.to(x.dtype), factor, unit, out, padding, size)
    pooled, affine = _empty_pooled(out), _affine(unit * own.gain, own.shift)
    for part in plane_norm.parts(out):
        torch.bmm(patches[part], affine[part], out=out[part])
        torch.mean(_four(out[part].clamp_min_(0.0)), 1, out=pooled[part])
    return seen.pictures(pooled), seen


def reference(
    x: torch.Tensor, weight: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, *, padding: int, eps: float
) -> torch.Tensor:
    """The four layers one after the other, of a kernel (out, in, 3, 3); autograd makes the rest of it."""
    return plane_norm.reference(F.conv2d(x, weight, padding=padding), gain, shift, eps)


def backward(cotangent: torch.Tensor, seen: Seen) -> FirstReturned:
    """The gradients of each record from the cotangent of the means."""
    cotangent = _quarters(cotangent)
    products = cotangent.new_empty(len(cotangent), seen.patches.shape[2], cotangent.shape[2])
    for part in plane_norm.parts(seen.out):
        torch.bmm(seen.patches[part].mT, seen.let_through(cotangent, part), out=products[part])
    by_patch, by_shift = products[:, :-1], products[:, -1]
    by_gain = (by_patch * seen.unit).sum(1, keepdim=True)
    scale = seen.weights.gain * seen.factor
    by_kernel = (by_patch - (seen.spread @ seen.unit) * by_gain) * scale
    return FirstReturned(cotangent, products, by_kernel, by_gain[:, 0], by_shift)


def forward_along(seen: Seen, along: FirstWeights) -> tuple[torch.Tensor, FirstMoved]:
    """How the means move with the weights."""
    drift = -((seen.spread @ seen.unit) * along.kernel).sum(1, keepdim=True) * seen.factor
    unit = along.kernel * seen.factor + seen.unit * drift
    pooled, affine = _empty_pooled(seen.out), _affine(seen.unit * along.gain + unit * seen.weights.gain, along.shift)
    for part in plane_norm.parts(seen.out):
        moving = torch.bmm(seen.patches[part], affine[part])
        passed = torch.ops.aten.threshold_backward(moving, seen.out[part], 0)
        torch.mean(_four(passed), 1, out=pooled[part])
    return seen.pictures(pooled), FirstMoved(unit, drift)


def backward_along(
    cotangent: torch.Tensor, seen: Seen, returned: FirstReturned, moved: FirstMoved, along: FirstWeights
) -> torch.Tensor:
    """How the pictures' cotangent moves with the weights, with `cotangent` as the move of that of the means."""
    cotangent = _quarters(cotangent)
    own, factor = seen.weights, seen.factor
    scale = own.gain * factor
    second = own.kernel * scale  # goes with what passes the ReLU now, `first` with what passed it before
    first = along.kernel * scale + own.kernel * (factor * (along.gain + own.gain * moved.drift))
    products = torch.empty_like(returned.products)
    by_patch = cotangent.new_empty(len(cotangent), len(own.kernel), seen.patches.shape[1])
    for part in plane_norm.parts(seen.out):
        passed = seen.let_through(cotangent, part)
        torch.bmm(seen.patches[part].mT, passed, out=products[part])
        torch.bmm(first[part], seen.let_through(returned.cotangent, part).mT, out=by_patch[part])
        by_patch[part].baddbmm_(second[part], passed.mT)
    by_gain = returned.by_gain[:, None]
    gain_moves = (products[:, :-1] * seen.unit + returned.products[:, :-1] * moved.unit).sum(1, keepdim=True)
    even = first @ returned.products[:, -1:].mT + second @ products[:, -1:].mT
    tilt = (first * by_gain + second * gain_moves) @ seen.unit.mT + (second * by_gain) @ moved.unit.mT
    by_patch.baddbmm_(torch.cat([tilt, even], 2), seen.patches.mT, alpha=-1.0 / seen.patches.shape[1])
    return _pictures_of(by_patch, seen)


def _patches(x: torch.Tensor, padding: int) -> tuple[torch.Tensor, tuple[int, int]]:
    """The patch around each pixel, its mean over the picture taken away, and a one; and the size of the plane."""
    framed = F.pad(x.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding))
    n, h, w, c = framed.shape
    record, row, column, channel = framed.stride()
    places = (n, 2, 2, h // 2 - 1, w // 2 - 1, 3, 3, c)
    steps = (record, row, column, 2 * row, 2 * column, row, column, channel)
    patches = framed.new_ones(n, (h - 2) * (w - 2), 9 * c + 1)
    centred = patches[..., :-1]
    centred.view(places).copy_(framed.as_strided(places, steps))
    centred.sub_(centred.mean(1, keepdim=True))
    return patches, (h - 2, w - 2)


def _pictures_of(by_patch: torch.Tensor, seen: Seen) -> torch.Tensor:
    """Each patch, (records, its numbers, pixels), added where it was taken from."""
    (h, w), edge, n = seen.size, seen.padding, len(by_patch)
    planes = by_patch.view(n, 3, 3, -1, 2, 2, h // 2, w // 2).permute(1, 2, 0, 3, 6, 4, 7, 5).reshape(3, 3, n, -1, h, w)
    framed = planes.new_zeros(*planes.shape[2:4], h + 2, w + 2)
    for i in range(3):
        for j in range(3):
            framed[:, :, i : i + h, j : j + w] += planes[i, j]
    return framed[:, :, edge : h + 2 - edge, edge : w + 2 - edge]


def _affine(kernel: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.cat([kernel, shift.expand(len(kernel), 1, -1)], 1)


def _four(values: torch.Tensor) -> torch.Tensor:
    n, pixels, channels = values.shape
    return values.view(n, 4, pixels // 4, channels)


def _empty_pooled(values: torch.Tensor) -> torch.Tensor:
    return values.new_empty(len(values), values.shape[1] // 4, values.shape[2])


def _quarters(cotangent: torch.Tensor) -> torch.Tensor:
    """A row a pixel of the means, for each of the four that they were made of."""
    return cotangent.permute(0, 2, 3, 1).flatten(1, 2) / 4
