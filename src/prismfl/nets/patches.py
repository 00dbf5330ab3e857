"""Features from public images alone: a dictionary of whitened patches (Coates and Ng 2011) and coarse colour.

Nothing here sees a private record, so computing these features costs no privacy. `Frame` turns them into coordinates of
norm at most one along the leading public directions, which is what a release sums up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.nets.smaller import smaller
from prismfl.rng import Key

CONTRAST_FLOOR = 1e-3  # keeps flat patches from being blown up to pure noise
ROUNDS = 8


class Patches(nn.Module):
    """Unit atoms (K, d) in the space that `whiten` (d, d) makes of patches around `centre`."""

    atoms: torch.Tensor
    whiten: torch.Tensor
    centre: torch.Tensor

    def __init__(
        self,
        atoms: torch.Tensor,
        whiten: torch.Tensor,
        centre: torch.Tensor,
        *,
        side: int,
        stride: int,
        threshold: float,
        pool: int,
        colour: int,
    ) -> None:
        super().__init__()
        for name, value in (("atoms", atoms), ("whiten", whiten), ("centre", centre)):
            self.register_buffer(name, value)
        self.side, self.stride, self.threshold, self.pool, self.colour = side, stride, threshold, pool, colour

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Pooled two-sided soft-threshold codes of every patch, and coarse colour. Differentiable in the images."""
        images = smaller(images)
        width, channels = self.whiten.shape[0], images.shape[1]
        padded = F.pad(images, [self.side // 2] * 4)
        box = torch.full((1, channels, self.side, self.side), 1.0 / width, device=images.device)
        mean = F.conv2d(padded, box, stride=self.stride)
        spread = (F.conv2d(padded * padded, box, stride=self.stride) - mean * mean).clamp_min(0.0)
        # Rows that sum to zero subtract the patch's mean for us, so no patch is ever written out.
        rows = self.whiten - self.whiten.mean(1, keepdim=True)
        white = F.conv2d(padded, rows.reshape(width, channels, self.side, self.side), stride=self.stride)
        white = white * (spread + CONTRAST_FLOOR).rsqrt() - (self.whiten @ self.centre)[None, :, None, None]
        code = F.conv2d(white / (white.norm(dim=1, keepdim=True) + 1.0), self.atoms[:, :, None, None])
        parts = [F.adaptive_avg_pool2d(F.relu(sign * code - self.threshold), self.pool) for sign in (1.0, -1.0)]
        if self.colour:
            parts.append(F.adaptive_avg_pool2d(images, self.colour))
        return torch.cat([part.flatten(1) for part in parts], 1)


def learn_patches(
    images: torch.Tensor,
    *,
    atoms: int,
    side: int,
    stride: int,
    pool: int,
    colour: int,
    key: Key,
    threshold: float = 0.25,
    samples: int = 60_000,
) -> Patches:
    """Whiten random patches of public images (n, c, h, w in 0..1) and cluster them on the sphere."""
    images, generator = smaller(images), key.torch()
    channels, rooms = images.shape[1], torch.tensor(images.shape[2:]) - side + 1
    which = torch.randint(len(images), (4 * samples,), generator=generator)
    at = torch.randint(int(rooms.max()), (4 * samples, 2), generator=generator) % rooms
    patches = images.unfold(2, side, 1).unfold(3, side, 1)[which, :, at[:, 0], at[:, 1]].reshape(4 * samples, -1)
    patches = patches - patches.mean(1, keepdim=True)
    # Flat patches (the black ground of a drawing) say nothing; keep the most telling quarter.
    patches = patches[patches.var(1, unbiased=False).argsort(descending=True)[:samples]]
    patches = patches * (patches.var(1, unbiased=False, keepdim=True) + CONTRAST_FLOOR).rsqrt()
    centre = patches.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(patches.T))
    whiten = vectors @ torch.diag((values.clamp_min(0) + 0.05 * values.mean()).rsqrt()) @ vectors.T
    points = F.normalize((patches - centre) @ whiten, dim=1)
    heads = points[torch.randperm(samples, generator=generator)[:atoms]].clone()
    for _ in range(ROUNDS):
        match = points @ heads.T
        nearest = match.abs().argmax(1)
        signed = match.gather(1, nearest[:, None]).sign() * points
        heads = F.normalize(torch.zeros_like(heads).index_add_(0, nearest, signed) + 1e-3 * heads, dim=1)
    shown = colour if channels == 3 else 0
    return Patches(heads, whiten, centre, side=side, stride=stride, threshold=threshold, pool=pool, colour=shown)


class Frame(nn.Module):
    """Public coordinates: standardise, turn to the leading public directions, scale, clip to norm one.

    `values` are the public variances of the coordinates, `unit` is what a variance of 1 before the scaling has become.
    """

    mean: torch.Tensor
    std: torch.Tensor
    basis: torch.Tensor
    values: torch.Tensor
    unit: torch.Tensor

    def __init__(
        self,
        mean: torch.Tensor,
        std: torch.Tensor,
        basis: torch.Tensor,
        *,
        values: torch.Tensor,
        unit: torch.Tensor,
        clip: float,
    ) -> None:
        super().__init__()
        for name, tensor in (("mean", mean), ("std", std), ("basis", basis), ("values", values), ("unit", unit)):
            self.register_buffer(name, tensor)
        self.clip = clip

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Coordinates of norm at most 1."""
        z = ((features - self.mean) / self.std) @ self.basis
        norms: torch.Tensor = z.norm(dim=1, keepdim=True)
        return z / norms.clamp_min(self.clip)


def _directions(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Variances of rows along their directions, ascending, and the directions: as many as there are features."""
    rows, width = z.shape
    if rows > width:
        values, vectors = torch.linalg.eigh(torch.cov(z.T).reshape(width, width))
        return values, vectors
    # Fewer images than features: many directions have no variance at all, which a covariance in single precision blurs.
    _, sizes, turned = torch.linalg.svd((z - z.mean(0)).double(), full_matrices=False)
    values = F.pad(sizes.square() / max(1, rows - 1), (0, width - len(sizes)))
    vectors = F.pad(turned.T, (0, width - len(sizes)))
    return values.flip(0).to(z.dtype), vectors.flip(1).to(z.dtype)


def fit_frame(features: torch.Tensor, *, rank: int, power: float, quantile: float, blocks: Sequence[int] = ()) -> Frame:
    """`power` flattens the spectrum (0.5 whitens); `quantile` of the public norms is where the clip sits.

    `blocks` are the widths of layers that stand side by side: each then has the same share, however wide it is.
    """
    mean, std = features.mean(0), features.std(0)
    std = std + 1e-3 * std.mean() + 1e-8
    if len(blocks) > 1:
        std = std * torch.cat([torch.full((width,), math.sqrt(width)) for width in blocks]).to(std)
    z = (features - mean) / std
    values, vectors = _directions(z)
    missing = max(0, rank - z.shape[1]) if blocks else 0
    rank = min(rank, z.shape[1])
    values, vectors = values.flip(0)[:rank].clamp_min(0), vectors.flip(1)[:, :rank]
    values, vectors = F.pad(values, (0, missing)), F.pad(vectors, (0, missing))
    scale = (values + 1e-3 * values[0]).pow(-power)
    basis = vectors * scale
    scaled = z @ basis
    clip = max(float(scaled.norm(dim=1).quantile(quantile)), 1e-6)
    return Frame(mean, std, basis, values=scaled.var(0) / clip**2, unit=scale.square() / clip**2, clip=clip)
