"""A diffusion model in the manner of EDM: preconditioning, the loss of a record, samplers, Adam.

Karras, Aittala, Aila, Laine, "Elucidating the Design Space of Diffusion-Based Generative Models",
https://arxiv.org/abs/2206.00364.

Pictures run from -1 to 1 inside. The loss of a record is the mean over several noise draws, so that they are averaged
*inside* its gradient, before the clip.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from prismfl.kernels.loss import Loss, Params
from prismfl.nets.augment import affine
from prismfl.nets.training import cosine
from prismfl.nets.unet import PATCH, UNet, UNetShape, build_unet
from prismfl.rng import Key

SKETCH = "sketch.weight"
SIGMA_DATA = 0.5
LEVEL_MEAN, LEVEL_SPREAD = -0.8, 1.2  # of the log of the noise levels in training
LOWEST, HIGHEST, RHO = 0.03, 12.0, 7.0  # of the noise levels in sampling
CHURN, CHURN_FROM, CHURN_TO = 0.3, 0.05, 10.0
BATCH = 250
Clean = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (noisy rows, their levels) -> clean rows


def denoise(
    module: UNet, params: Params, x: torch.Tensor, sigma: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The network's output with the factors (skip, out) that make a clean picture of it."""
    wide = sigma[:, None, None, None]
    total = (wide.square() + SIGMA_DATA**2).sqrt()
    raw = torch.func.functional_call(module, dict(params), (x / total, sigma.log() / 4, labels))
    return raw, SIGMA_DATA**2 / total.square(), wide * SIGMA_DATA / total


def misfit(
    module: UNet, params: Params, *, x: torch.Tensor, labels: torch.Tensor, sigma: torch.Tensor,
    noise: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The weighted squared error, in the form in which the network's target has unit variance at every noise level."""
    noisy = x + sigma[:, None, None, None] * noise
    raw, skip, out = denoise(module, params, noisy, sigma, labels)
    return (raw - (x - skip * noisy) / out).square().mean()


def normals(image: tuple[int, ...], draws: int) -> int:
    """How many normal numbers the noise draws of a record take: a level and a noise each."""
    return draws * (1 + math.prod(image))


def noise_draws(z: torch.Tensor, image: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise levels and noises out of normal numbers: (..., normals) to (..., draws) and (..., draws, *image)."""
    draws = z.shape[-1] // (1 + math.prod(image))
    noises = z[..., draws:].reshape(*z.shape[:-1], draws, *image)
    return torch.exp(LEVEL_MEAN + LEVEL_SPREAD * z[..., :draws]), noises


@dataclass(frozen=True)
class RecordMisfit(Loss):
    """The loss of one record: the mean over its noise draws, made of its own normal numbers (`extra`)."""

    classes: int = 1

    def __call__(self, params: Params, x: torch.Tensor, y: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        """The loss of one record; `extra` are its noise level and noise."""
        sigma, noise = noise_draws(extra[0], tuple(x.shape))
        label = (torch.arange(self.classes, device=y.device) == y).to(x)
        assert isinstance(self.module, UNet)
        return misfit(
            self.module,
            params,
            x=(2.0 * x - 1.0).expand_as(noise),
            labels=label.expand(len(sigma), -1),
            sigma=sigma,
            noise=noise,
        )


def record_misfit(module: UNet, classes: int) -> RecordMisfit:
    """The loss of one record under a network."""
    return RecordMisfit(module, _unused, classes)


@dataclass(frozen=True)
class Learner:
    """Everything a training has to remember: parameters, their running mean, Adam's moments, steps done."""

    params: Params
    mean: Params
    first: Params
    second: Params
    steps: int = 0

    @classmethod
    def start(cls, params: Params) -> Learner:
        """A training that has not begun."""
        zero = {k: torch.zeros_like(p) for k, p in params.items()}
        return cls(dict(params), dict(params), zero, zero)

    def step(self, gradient: Params, lr: float, *, keep: float) -> Learner:
        """One step of Adam on a gradient from wherever it comes; `keep` is the running mean's memory."""
        n = self.steps + 1
        first = {k: 0.9 * m + 0.1 * gradient[k] for k, m in self.first.items()}
        second = {k: 0.99 * v + 0.01 * gradient[k].square() for k, v in self.second.items()}
        scale = lr / (1 - 0.9**n)
        params = {k: p - scale * first[k] / ((second[k] / (1 - 0.99**n)).sqrt() + 1e-8) for k, p in self.params.items()}
        memory = min(keep, n / (9.0 + n))
        mean = {k: torch.lerp(params[k], m, memory) for k, m in self.mean.items()}
        return Learner(params, mean, first, second, n)

    def to(self, device: str) -> Learner:
        """The same on another device."""
        params, mean, first, second = (
            {k: v.to(device) for k, v in part.items()} for part in (self.params, self.mean, self.first, self.second)
        )
        return Learner(params, mean, first, second, self.steps)

    @property
    def finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return all(bool(torch.isfinite(p).all()) for p in self.params.values())

    def tensors(self) -> Params:
        """All of it under names, to be remembered between the parts of a long training."""
        parts = {"params": self.params, "mean": self.mean, "first": self.first, "second": self.second}
        named = {f"{part}/{k}": v for part, values in parts.items() for k, v in values.items()}
        return {**named, "steps": torch.tensor(self.steps)}

    @classmethod
    def of(cls, tensors: Params) -> Learner:
        """The inverse of `tensors`."""

        def part(name: str) -> Params:
            return {k.removeprefix(f"{name}/"): v for k, v in tensors.items() if k.startswith(f"{name}/")}

        return cls(part("params"), part("mean"), part("first"), part("second"), int(tensors["steps"]))


def plain_step(module: UNet, learner: Learner, *, x: torch.Tensor, labels: torch.Tensor, lr: float, keep: float,
               generator: torch.Generator) -> Learner:  # fmt: skip
    """A step on pictures at hand that are not private: one noise draw each."""
    leaves = {k: p.detach().requires_grad_() for k, p in learner.params.items()}
    image = tuple(x.shape[1:])
    z = torch.randn(len(x), normals(image, 1), generator=generator, device=generator.device)
    sigma, noise = noise_draws(z.to(x.device), image)
    loss = misfit(module, leaves, x=2.0 * x - 1.0, labels=labels, sigma=sigma[:, 0], noise=noise[:, 0])
    gradient = torch.autograd.grad(loss, list(leaves.values()))
    return learner.step(dict(zip(leaves, gradient)), lr, keep=keep)


def sketched(learner: Learner, x: torch.Tensor, y: torch.Tensor) -> Learner:
    """A start where each class's sketch is the mean of its pictures; classes without one keep what they had."""
    folded, old = F.pixel_unshuffle(2.0 * x - 1.0, PATCH).flatten(1), learner.params[SKETCH]
    own = [folded[y == c].mean(0) if bool((y == c).any()) else kept for c, kept in enumerate(old.T)]
    return Learner.start({**learner.params, SKETCH: torch.stack(own, 1)})


def warm_up(
    module: UNet, learner: Learner, *, x: torch.Tensor, y: torch.Tensor, steps: int, batch: int, lr: float, key: Key
) -> Learner:
    """Some steps on a few pictures, each a little moved; what it ends with is the start of a new training."""
    classes = learner.params[SKETCH].shape[1]
    labels, generator = F.one_hot(y, classes).float().to(x.device), key.torch()
    for i in range(steps):
        rows = torch.randint(len(x), (batch,), generator=generator)
        learner = plain_step(
            module,
            learner,
            x=affine(x[rows], generator, flip=x.shape[1] == 3),
            labels=labels[rows],
            lr=cosine(lr, i, steps),
            keep=0.99,
            generator=generator,
        )
    return Learner.start(learner.mean)


@dataclass(frozen=True)
class Sampler:
    """How pictures are drawn: `euler` and `heun` are deterministic given the start, `stochastic` is Heun with churn."""

    kind: Literal["euler", "heun", "stochastic"] = "heun"
    steps: int = 12
    highest: float = HIGHEST
    lowest: float = LOWEST

    def ladder(self) -> torch.Tensor:
        """The noise levels from the highest down to zero."""
        t = torch.linspace(0, 1, self.steps)
        high, low = self.highest ** (1 / RHO), self.lowest ** (1 / RHO)
        return torch.cat([(high + t * (low - high)) ** RHO, torch.zeros(1)])

    def __call__(
        self, module: UNet, params: Params, labels: torch.Tensor, *, shape: UNetShape, key: Key
    ) -> torch.Tensor:
        """A picture in [0, 1] for each label, in batches so that memory stays bounded."""
        generator = key.torch()
        with torch.no_grad():
            parts = [self._batch(module, params, y, shape, generator) for y in torch.split(labels, BATCH) if len(y)]
        return torch.cat(parts) if parts else torch.zeros(0, *shape.image)

    def _batch(
        self, module: UNet, params: Params, y: torch.Tensor, shape: UNetShape, g: torch.Generator
    ) -> torch.Tensor:
        device = next(iter(params.values())).device
        labels = F.one_hot(y, shape.classes).float().to(device)
        x = torch.randn(len(y), *shape.image, generator=g).to(device) * float(self.ladder()[0])

        def clean(at: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
            raw, skip, out = denoise(module, params, at, level, labels)
            return (skip * at + out * raw).clamp(-1.0, 1.0)

        return ((self.walk(x, clean, g) + 1.0) / 2.0).clamp(0.0, 1.0).cpu()

    def walk(self, x: torch.Tensor, clean: Clean, g: torch.Generator) -> torch.Tensor:
        """From rows at the highest noise level to clean ones; `clean` is what a network says is behind noisy ones."""
        ladder = self.ladder()

        def slope(at: torch.Tensor, sigma: float) -> torch.Tensor:
            return (at - clean(at, torch.full((len(at),), sigma, device=at.device))) / sigma

        for now, after in zip(ladder[:-1].tolist(), ladder[1:].tolist()):
            if self.kind == "stochastic" and CHURN_FROM <= now <= CHURN_TO:
                higher = now * (1 + CHURN)
                x, now = x + math.sqrt(higher**2 - now**2) * torch.randn(x.shape, generator=g).to(x.device), higher
            here = slope(x, now)
            x_next = x + (after - now) * here
            if after > 0 and self.kind != "euler":
                x_next = x + (after - now) * 0.5 * (here + slope(x_next, after))
            x = x_next
        return x


def fresh(shape: UNetShape, key: Key) -> tuple[UNet, Learner]:
    """A fresh network and its training, not begun."""
    module = build_unet(shape, key)
    return module, Learner.start({k: p.detach().clone() for k, p in module.named_parameters()})


def _unused(*_: torch.Tensor) -> torch.Tensor:
    raise AssertionError("RecordMisfit computes its own loss.")
