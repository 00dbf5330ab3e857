"""Training a fresh network from softly labelled images: no private record, nothing chosen on test data."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from prismfl.kernels.loss import Params
from prismfl.kernels.parts import in_parts
from prismfl.nets.augment import shift_and_flip
from prismfl.nets.classifier import Classifier, Shaped, network
from prismfl.rng import Key
from prismfl.stages import track

EMA = 0.995


def balanced_weights(labels: torch.Tensor, *, rounds: int = 30, most: float = 20.0) -> torch.Tensor:
    """Draw weights that bring soft classes to equal mass; no class is raised more than `most` times over another."""
    factor = torch.ones(labels.shape[1], device=labels.device)
    for _ in range(rounds):
        weights = labels @ factor
        mass = (weights[:, None] * labels).sum(0) / weights.sum()
        factor = (factor / (mass * len(mass)).clamp_min(1e-6)).clamp_min(1e-6)
        factor = (factor / factor.min()).clamp_max(most)
    return labels @ factor


def distil(
    classifier: Classifier,
    params: Params,
    *,
    x: torch.Tensor,
    y: torch.Tensor,
    weights: torch.Tensor,
    steps: int,
    batch: int,
    lr: float,
    colour: bool,
    key: Key,
) -> Params:
    """AdamW along a cosine on soft labels `y`, drawn by `weights`; ends with the averaged parameters."""
    leaves = {k: v.detach().clone().requires_grad_() for k, v in params.items()}
    average = {k: v.detach().clone() for k, v in leaves.items()}
    optimiser = torch.optim.AdamW(list(leaves.values()), lr=lr, weight_decay=5e-4)
    generator = key.torch()
    order = torch.multinomial(weights.cpu(), steps * batch, replacement=True, generator=generator)
    for i, rows in enumerate(track(torch.split(order, batch), "training", steps)):
        optimiser.param_groups[0]["lr"] = lr * min(1.0, (i + 1) / 50) * 0.5 * (1 + math.cos(math.pi * i / steps))
        pictures = shift_and_flip(x[rows], generator) if colour else x[rows]
        optimiser.zero_grad(set_to_none=True)
        parts = in_parts(pictures, batch, learning=True)  # large pictures a few at a time: the gradients add up
        for part, labels in zip(parts, torch.split(y[rows], len(parts[0]))):
            loss = -(labels * F.log_softmax(classifier.logits(leaves, part), 1)).sum(1).mean()
            (loss if len(parts) == 1 else loss * (len(part) / len(rows))).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        keep = min(EMA, (1 + i) / (10 + i))
        with torch.no_grad():
            for k, mean in average.items():
                mean.lerp_(leaves[k], 1.0 - keep)
    return average


def train_fresh(
    task: Shaped,
    *,
    x: torch.Tensor,
    y: torch.Tensor,
    weights: torch.Tensor,
    steps: int,
    batch: int,
    lr: float,
    key: Key,
) -> Params:
    """A new network of the task's kind that has seen nothing but these images."""
    classifier, params = network(task, key=key.child("fresh"))
    return distil(
        classifier,
        params,
        x=x,
        y=y,
        weights=weights,
        steps=steps,
        batch=batch,
        lr=lr,
        colour=task.shape[0] == 3,
        key=key.child("train"),
    )
