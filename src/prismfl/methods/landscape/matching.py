"""Images that stand for a loss landscape: their gradients point where the records' gradients do, near a model.

Gradient matching (https://arxiv.org/abs/2006.05929) along training paths inside a trust region, as in FedLAP
(https://arxiv.org/abs/2302.01068).
Nothing here touches a record: the gradients to match come from a function, be it the door's or exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from prismfl.kernels import double_backward
from prismfl.kernels.loss import Params
from prismfl.nets.classifier import Classifier
from prismfl.nets.siamese import View
from prismfl.nets.training import step

Target = Callable[[Params, View | None], Params]
TINY = 1e-6


@dataclass(frozen=True)
class Criterion:
    """What "alike" means for two gradients: cosine distance of each output channel, and a weighted squared error."""

    cosine: bool = True
    mse: float = 0.0

    def distance(self, found: Params, wanted: Params, names: Sequence[str]) -> torch.Tensor:
        """Per layer, the cosine distance averaged over rows (output channels; vectors are one row), plus the error."""
        total = torch.zeros((), device=found[names[0]].device)
        for name in names:
            a, b = (g[name].flatten(1) if g[name].dim() > 1 else g[name][None] for g in (found, wanted))
            if self.cosine:
                norms = torch.linalg.vector_norm(a, dim=1) * torch.linalg.vector_norm(b, dim=1)
                total = total + (1.0 - (a * b).sum(1) / (norms + TINY)).mean()
            if self.mse:
                total = total + self.mse * (a - b).square().sum()
        return total


def detectable(module: nn.Module) -> list[str]:
    """Parameters whose gradient says something.

    A bias right before a norm with one group per channel moves nothing: its gradient is zero up to rounding, and the
    direction of rounding errors must not be matched.
    """
    silent, before = set(), ""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.GroupNorm) and layer.num_groups == layer.num_channels:
            silent.add(f"{before}.bias")
        if not list(layer.children()):
            before = name
    return [name for name, _ in module.named_parameters() if name not in silent]


@dataclass(frozen=True, eq=False)
class Matcher:
    """A network together with what its gradients are compared by; with `reference`, by autograd alone."""

    classifier: Classifier
    criterion: Criterion = Criterion()
    reference: bool = False
    names: Sequence[str] = field(init=False)
    plain: double_backward.Plain | None = field(init=False)

    def __post_init__(self) -> None:
        module = self.classifier.module
        object.__setattr__(self, "names", detectable(module))
        object.__setattr__(self, "plain", None if self.reference else double_backward.plain_convnet(module))

    def image_gradient(
        self,
        params: Params,
        *,
        x: torch.Tensor,
        y: torch.Tensor,
        target: Params,
        view: View | None = None,
    ) -> torch.Tensor:
        """The gradient by the images of the distance between their gradient and `target`."""
        leaf = x.detach().requires_grad_()
        seen = leaf if view is None else view(leaf)
        plain = self._plain(params, x)
        if plain is None:
            distance = self.criterion.distance(self._graph(params, seen, y), target, self.names)
            return torch.autograd.grad(distance, leaf)[0]
        with torch.no_grad():
            done = double_backward.ordinary(plain, params, seen.detach(), y)
        by_weights = {k: g.requires_grad_(k in self.names) for k, g in done.gradient.items()}
        distance = self.criterion.distance(by_weights, target, self.names)
        found = torch.autograd.grad(distance, [by_weights[k] for k in self.names])
        silent = {k: torch.zeros_like(p) for k, p in params.items()}
        with torch.no_grad():
            back = double_backward.by_images(plain, params, done, silent | dict(zip(self.names, found)))
        return back if view is None else torch.autograd.grad(seen, leaf, back)[0]

    def gradient(self, params: Params, x: torch.Tensor, y: torch.Tensor) -> Params:
        """The gradient of the mean loss by the weights."""
        plain = self._plain(params, x)
        if plain is None:
            return self.classifier.gradient(params, x, y)
        with torch.no_grad():
            return double_backward.ordinary(plain, params, x, y).gradient

    def _plain(self, params: Params, x: torch.Tensor) -> double_backward.Plain | None:
        return self.plain if self.plain is not None and double_backward.fits(self.plain, params, x) else None

    def _graph(self, params: Params, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
        loss = self.classifier.loss(leaves, x, y)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), create_graph=True)))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long images are fitted: paths from the start, stops on a path, batches per stop, image updates per batch, and
    model steps from one stop to the next."""

    stops: int
    updates: int
    model_steps: int
    image_lr: float
    momentum: float
    lr: float
    paths: int = 1
    batches: int = 1
    radius: float = math.inf

    @property
    def queries(self) -> int:
        """Gradients of the records at most: the radius may stop a path early."""
        return self.paths * self.stops * self.batches


def approximate(
    matcher: Matcher,
    start: Params,
    *,
    x: torch.Tensor,
    y: torch.Tensor,
    target: Target,
    schedule: Schedule,
    views: Callable[[], View | None] = lambda: None,
) -> tuple[torch.Tensor, int]:
    """Images fitted to the gradients that `target` gives along paths from `start`, and how many it was asked for.

    A path ends where it leaves the trust region. `views` draws the augmentation of the next batch, one for both sides.
    """
    asked, velocity = 0, torch.zeros_like(x)
    for _ in range(schedule.paths):
        params = dict(start)
        for _ in range(schedule.stops):
            if length(params, start) >= schedule.radius:
                break
            for _ in range(schedule.batches):
                view = views()
                wanted = target(params, view)
                asked += 1
                for _ in range(schedule.updates):
                    gradient = matcher.image_gradient(params, x=x, y=y, target=wanted, view=view)
                    velocity = schedule.momentum * velocity + gradient
                    x = x - schedule.image_lr * velocity
            for _ in range(schedule.model_steps):
                params = step(params, matcher.gradient(params, x, y), schedule.lr)
    return x, asked


def length(params: Params, start: Params) -> float:
    """The Euclidean distance between two models."""
    return math.sqrt(sum(float((params[k] - start[k]).double().square().sum()) for k in params))


@dataclass(frozen=True)
class Walk:
    """Where training on images ended: the model, how far from the start, after how many steps."""

    params: Params
    distance: float
    steps: int


def walk(
    gradient: Callable[[Params], Params],
    start: Params,
    *,
    lr: float,
    radius: float,
    steps: int,
    at_least: int = 0,
    visit: Callable[[Params, float], None] = lambda params, distance: None,
) -> Walk:
    """Gradient descent that stops before it leaves the ball of `radius` around the start, but not before `at_least`."""
    params, distance, done = dict(start), 0.0, 0
    while done < steps:
        ahead = step(params, gradient(params), lr)
        reached = length(ahead, start)
        if not math.isfinite(reached) or (reached > radius and done >= at_least):
            break
        params, distance, done = ahead, reached, done + 1
        visit(params, distance)
    return Walk(params, distance, done)
