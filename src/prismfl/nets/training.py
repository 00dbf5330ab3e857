"""Training loops that take a gradient from wherever it comes: the door, or plain records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch

from prismfl.kernels.loss import Params
from prismfl.nets.classifier import Classifier, batches
from prismfl.rng import Key

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def cosine(rate: float, step: int, steps: int) -> float:
    """A learning rate that falls from `rate` to 0 along half a cosine."""
    return 0.5 * rate * (1.0 + math.cos(math.pi * step / max(1, steps)))


def step(params: Params, gradient: Params, lr: float) -> dict[str, torch.Tensor]:
    """One step of plain gradient descent."""
    return {k: p - lr * gradient[k] for k, p in params.items()}


def descend(params: Params, gradient: Callable[[Params, int], Params], *, steps: int, lr: float) -> Params:
    """Plain gradient descent with the gradient that `gradient(params, i)` gives at each step."""
    for i in range(steps):
        params = step(params, gradient(params, i), lr)
    return params


def average(models: Iterable[Params]) -> Params:
    """The unweighted mean: site sizes are private, so every site counts the same. Holds one model at a time."""
    total: Params = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for model in models:
        kinds = kinds or {k: v.dtype for k, v in model.items()}
        total = {k: v.to(torch.float64, copy=True) if not count else total[k].add_(v) for k, v in model.items()}
        count += 1
    return {k: (v / count).to(kinds[k]) for k, v in total.items()}


def fit(
    classifier: Classifier,
    params: Params,
    *,
    x: torch.Tensor,
    y: torch.Tensor,
    epochs: int,
    batch: int,
    lr: float,
    key: Key,
    augment: Augment | None = None,
    optimiser: str = "sgd",
    schedule: bool = True,
    weight_decay: float = 0.0,
) -> Params:
    """Ordinary training on records at hand (public, synthetic, or raw ones that stay on the site).

    `y` holds class numbers or rows of soft labels.
    """
    if not len(x):
        return params
    leaves = {k: v.detach().clone().requires_grad_() for k, v in params.items()}
    values = list(leaves.values())
    opt: torch.optim.Optimizer = torch.optim.SGD(values, lr=lr, weight_decay=weight_decay, momentum=0.9)
    if optimiser == "adam":
        opt = torch.optim.Adam(values, lr=lr, weight_decay=weight_decay)
    order, noise = key.child("order").torch(), key.child("augment").torch(x.device)
    total, done = epochs * math.ceil(len(x) / batch), 0
    for _ in range(epochs):
        for rows in batches(len(x), batch, order):
            if schedule:
                opt.param_groups[0]["lr"] = cosine(lr, done, total)
            picture = x[rows] if augment is None else augment(x[rows], noise)
            opt.zero_grad(set_to_none=True)
            classifier.loss(leaves, picture, y[rows]).backward()  # type: ignore[no-untyped-call]
            opt.step()
            done += 1
    return {k: v.detach() for k, v in leaves.items()}
