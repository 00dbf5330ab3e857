"""Synthesis as post-processing: public images are moved until their mean features meet released ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

from prismfl.nets.smaller import smaller
from prismfl.rng import Key
from prismfl.stages import track

Look = Callable[[torch.Tensor], torch.Tensor]
BLUR = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16.0


def match_images(
    looks: Sequence[Look],
    targets: torch.Tensor,
    *,
    seeds: torch.Tensor,
    labels: torch.Tensor,
    steps: int,
    per_step: int,
    lr: float,
    closeness: float,
    key: Key,
    spread: Look | None = None,
    spread_every: int = 4,
) -> torch.Tensor:
    """Images like `seeds` whose mean answer to look k, over the images of class c, is close to targets[c, k].

    Each step asks a random few of the looks, so that the images cannot fool one network. The pixels are sigmoids of
    blurred parameters, which keeps out high-frequency patterns. `closeness` is the knob between "closer to public"
    (large) and "more useful" (zero). `spread` is one more number to bring down, every few steps as it is dear.
    """
    generator, channels = key.torch(), seeds.shape[1]
    kernel = BLUR.to(seeds).expand(channels, 1, 3, 3)
    free = torch.logit(0.9 * seeds + 0.05).requires_grad_()
    optimiser = torch.optim.Adam([free], lr=lr, betas=(0.9, 0.99))
    mean_of = F.one_hot(labels, len(targets)).to(seeds)
    mean_of = (mean_of / mean_of.sum(0).clamp_min(1.0)).T
    for i in track(range(steps), "matching", steps):
        optimiser.param_groups[0]["lr"] = lr * (0.05 + 0.475 * (1 + math.cos(math.pi * i / steps)))
        images = torch.sigmoid(F.conv2d(F.pad(free, [1] * 4, mode="replicate"), kernel, groups=channels))
        loss = torch.zeros((), device=seeds.device)
        if closeness:
            loss = closeness * (images - seeds).square().flatten(1).sum(1).mean()
        seen = smaller(images)  # once for all looks
        for k in torch.randperm(len(looks), generator=generator)[:per_step].tolist():
            loss = loss + (mean_of @ looks[k](seen) - targets[:, k]).square().sum() / per_step
        if spread is not None and i % spread_every == 0:
            loss = loss + spread(images)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        return torch.sigmoid(F.conv2d(F.pad(free, [1] * 4, mode="replicate"), kernel, groups=channels))


def moment_gap(z: torch.Tensor, labels: torch.Tensor, *, classes: int) -> torch.Tensor:
    """How far vectors are from mean zero in each class and from unit covariance over all of them."""
    members = F.one_hot(labels, classes).to(z)
    means = (members / members.sum(0).clamp_min(1.0)).T @ z
    gap = z.T @ z / len(z) - torch.eye(z.shape[1], device=z.device)
    return means.square().sum() / classes + gap.square().sum() / z.shape[1]
