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


class Mean:
    """The unweighted mean of models, one after the other: site sizes are private, so every site counts the same."""

    def __init__(self) -> None:
        self._total: Params = {}
        self._kinds: dict[str, torch.dtype] = {}
        self._count = 0

    def add(self, model: Params) -> None:
        """One model more."""
        if not self._count:
            self._kinds = {k: v.dtype for k, v in model.items()}
            self._total = {k: v.to(torch.float64, copy=True) for k, v in model.items()}
        else:
            self._total = {k: self._total[k].add_(v) for k, v in model.items()}
        self._count += 1

    def value(self) -> Params:
        """The mean so far."""
        return {k: (v / self._count).to(self._kinds[k]) for k, v in self._total.items()}


def average(models: Iterable[Params]) -> Params:
    """The unweighted mean. Holds one model at a time."""
    mean = Mean()
    for model in models:
        mean.add(model)
    return mean.value()


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
