"""Norm with one group a channel, ReLU and 2x2 mean pooling in one go, forward and backward, and along a direction.

These cost no arithmetic to speak of, only memory: a few records at a time go through all steps while they are in the
cache, and what can be made again (the output of the norm, its cotangent) is not stored. Pictures have their
channels last; inside, a plane is one axis: (records, pixels, channels).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional as F

CACHED = 2**18  # numbers of one tensor that are worked on at a time


@dataclass(frozen=True)
class Normed:
    """What a pass forward leaves: normalised values, and the factor of each record and channel that made them so."""

    normal: torch.Tensor
    factor: torch.Tensor
    gain: torch.Tensor
    shift: torch.Tensor

    def output(self, part: slice) -> torch.Tensor:
        """What the norm gave for some records."""
        return torch.addcmul(self.shift, flat(self.normal)[part], self.gain)

    def at_output(self, cotangent: torch.Tensor, part: slice) -> torch.Tensor:
        """The cotangent of the norm's output from that of the pooled one."""
        out, pixels = self.output(part), _unpooled(cotangent[part], self.normal.shape[2:])
        passed: torch.Tensor = torch.ops.aten.threshold_backward(pixels, out.view(pixels.shape), 0)
        return passed.view(out.shape)


@dataclass(frozen=True)
class Returned:
    """What a pass backward leaves: the cotangent of the pooled output, and of each record's shift and gain."""

    cotangent: torch.Tensor
    by_shift: torch.Tensor
    by_gain: torch.Tensor


@dataclass(frozen=True)
class Moved:
    """What a pass forward along a direction leaves: how the normalised values move, and along themselves."""

    normal: torch.Tensor
    drift: torch.Tensor


def forward(z: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, eps: float) -> tuple[torch.Tensor, Normed]:
    """The pooled output. `z` is overwritten."""
    z = z.contiguous(memory_format=torch.channels_last)
    kept = Normed(z, z.new_empty(len(z), 1, z.shape[1]), gain, shift)
    pooled = _empty_pooled(z)
    for part in parts(z):
        normal = flat(z)[part]
        normal.sub_(normal.mean(1, keepdim=True))
        kept.factor[part] = torch.rsqrt(normal.square().mean(1, keepdim=True) + eps)
        normal.mul_(kept.factor[part])
        pooled[part] = _pooled(kept.output(part).clamp_min_(0.0), z)
    return pooled, kept


def reference(z: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, eps: float) -> torch.Tensor:
    """The three layers one after the other; autograd makes the rest of it."""
    return F.avg_pool2d(torch.relu(F.group_norm(z, z.shape[1], gain, shift, eps)), 2)


def backward(cotangent: torch.Tensor, kept: Normed) -> tuple[torch.Tensor, Returned]:
    """The cotangents of `z`, gain and shift from that of the pooled output."""
    before = torch.empty_like(kept.normal)
    done = Returned(cotangent, torch.empty_like(kept.factor), torch.empty_like(kept.factor))
    count = before.shape[2] * before.shape[3]
    for part in parts(before):
        at_norm, normal = kept.at_output(cotangent, part), flat(kept.normal)[part]
        torch.sum(at_norm, 1, keepdim=True, out=done.by_shift[part])
        torch.sum(at_norm * normal, 1, keepdim=True, out=done.by_gain[part])
        scale = kept.gain * kept.factor[part]
        free = torch.addcmul(done.by_shift[part] * scale / -count, at_norm, scale, out=flat(before)[part])
        free.addcmul_(normal, done.by_gain[part] * scale, value=-1.0 / count)
    return before, done


def forward_along(
    moving: torch.Tensor, kept: Normed, gain: torch.Tensor, shift: torch.Tensor
) -> tuple[torch.Tensor, Moved]:
    """How the pooled output moves with `z`, gain and shift. `moving` is overwritten."""
    moving = moving.contiguous(memory_format=torch.channels_last)
    pooled, drift = _empty_pooled(moving), torch.empty_like(kept.factor)
    for part in parts(moving):
        moved, normal = flat(moving)[part], flat(kept.normal)[part]
        torch.mean(moved * normal, 1, keepdim=True, out=drift[part])
        factor = kept.factor[part]
        torch.addcmul(-moved.mean(1, keepdim=True) * factor, moved, factor, out=moved)
        moved.addcmul_(normal, drift[part] * factor, value=-1.0)
        out = torch.addcmul(shift, normal, gain).addcmul_(moved, kept.gain)
        pooled[part] = _pooled(torch.ops.aten.threshold_backward(out, kept.output(part), 0), moving)
    return pooled, Moved(moving, drift)


def backward_along(
    cotangent: torch.Tensor, kept: Normed, done: Returned, moved: Moved, gain: torch.Tensor
) -> torch.Tensor:
    """How the cotangent of `z` moves, with `cotangent` as the move of that of the pooled output."""
    before = torch.empty_like(kept.normal)
    count = before.shape[2] * before.shape[3]
    for part in parts(before):
        normal, turn = flat(kept.normal)[part], flat(moved.normal)[part]
        at_norm, first = kept.at_output(cotangent, part), kept.at_output(done.cotangent, part)
        along = (at_norm * normal).addcmul_(first, turn).mean(1, keepdim=True)
        scale = kept.gain * kept.factor[part]
        weight = kept.factor[part] * (gain - scale * moved.drift[part])  # of the first pass's cotangent
        by_shift, by_gain = (sums[part] / count for sums in (done.by_shift, done.by_gain))
        even = at_norm.mean(1, keepdim=True) * scale + by_shift * weight
        move = torch.addcmul(-even, at_norm, scale, out=flat(before)[part]).addcmul_(first, weight)
        move.addcmul_(normal, along * scale + by_gain * weight, value=-1.0)
        move.addcmul_(turn, by_gain * scale, value=-1.0)
    return before


def flat(pictures: torch.Tensor) -> torch.Tensor:
    """A view with the plane as one axis; an error if the channels are not last in memory."""
    n, c, h, w = pictures.shape
    return pictures.permute(0, 2, 3, 1).view(n, h * w, c)


def parts(pictures: torch.Tensor) -> Iterator[slice]:
    """A few records at a time."""
    at_once = max(1, CACHED // max(1, pictures[0].numel())) if len(pictures) else 1
    return (slice(i, i + at_once) for i in range(0, len(pictures), at_once))


def _empty_pooled(z: torch.Tensor) -> torch.Tensor:
    n, c, h, w = z.shape
    return z.new_empty(n, h // 2, w // 2, c).permute(0, 3, 1, 2)


def _pooled(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    _, c, h, w = like.shape
    return F.avg_pool2d(values.view(-1, h, w, c).permute(0, 3, 1, 2), 2)


def _unpooled(cotangent: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """Each number of a cotangent for the four pixels it was a mean of, channels last.

    An odd last row or column saw nothing; without one this is a view, with the four pixels as axes of their own.
    """
    quarter = cotangent.permute(0, 2, 3, 1) / 4
    n, rows, columns, c = quarter.shape
    wide = quarter[:, :, None, :, None].expand(n, rows, 2, columns, 2, c)
    missing = size[0] - 2 * rows, size[1] - 2 * columns
    if not any(missing):
        return wide
    return F.pad(wide.reshape(n, 2 * rows, 2 * columns, c), (0, 0, 0, missing[1], 0, missing[0]))
