"""The two diffusion models that DP-FETA trains: a U-Net on pixels, and linear layers on low frequencies.

Both are asked alike: a fresh training, the loss of a record, how many random numbers a record takes, and pictures out
of released tensors. What is fixed before the training and released with it (`fixed`) comes from the first questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from prismfl.kernels.loss import Loss, Params
from prismfl.nets import diffusion
from prismfl.nets.diffusion import BATCH, Learner, Sampler
from prismfl.nets.frequencies import Coefficients, Denoiser, Gaussians, network
from prismfl.nets.unet import UNet, UNetShape, build_unet
from prismfl.rng import Key

MEAN, AXES, SPREAD = "class.mean", "class.axes", "class.spread"
UNIT = 10.0  # of released coefficients, so that they lie where weights do


class Diffuser(Protocol):
    """A diffusion model of public structure."""

    def fresh(self, key: Key) -> Learner:
        """A training that has not begun."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all tensors that are released, fixed ones included."""

    def loss(self, fixed: Params) -> Loss:
        """The loss of one record."""

    def normals(self, draws: int) -> int:
        """Normal numbers that so many noise draws of a record take."""

    def draw(self, tensors: Params, labels: torch.Tensor, key: Key) -> torch.Tensor:
        """Pictures in [0, 1] out of released tensors."""


@dataclass(frozen=True)
class OnPixels:
    """A U-Net; nothing is fixed beforehand."""

    shape: UNetShape
    sampler: Sampler
    device: str

    def fresh(self, key: Key) -> Learner:
        """A training that has not begun."""
        return diffusion.fresh(self.shape, key)[1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the network."""
        with torch.random.fork_rng(devices=[]):
            return {name: tuple(p.shape) for name, p in UNet(self.shape).named_parameters()}

    def loss(self, fixed: Params) -> Loss:
        """The loss of one record."""
        return diffusion.record_misfit(build_unet(self.shape, Key.seed(0)), self.shape.classes)

    def normals(self, draws: int) -> int:
        """A level and a noise a draw."""
        return diffusion.normals(self.shape.image, draws)

    def draw(self, tensors: Params, labels: torch.Tensor, key: Key) -> torch.Tensor:
        """Pictures in [0, 1] out of released tensors."""
        module = build_unet(self.shape, Key.seed(0))
        params = {name: tensors[name].to(self.device) for name, _ in module.named_parameters()}
        return self.sampler(module, params, labels, shape=self.shape, key=key)


@dataclass(frozen=True)
class OnFrequencies:
    """Linear layers around a Gaussian of each class: a `known` one, fixed and released, or a public one."""

    space: Coefficients
    classes: int
    width: int
    sampler: Sampler
    known: bool
    device: str

    def fresh(self, key: Key) -> Learner:
        """A training that has not begun."""
        module = network(self.space, self.classes, self.width, key)
        return Learner.start({name: p.detach().clone() for name, p in module.named_parameters()})

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the network, and of the Gaussians where they are not public."""
        module, count = network(self.space, self.classes, self.width, Key.seed(0)), self.space.count
        found = {name: tuple(p.shape) for name, p in module.named_parameters()}
        square = {MEAN: (self.classes, count), AXES: (self.classes, count, count), SPREAD: (self.classes, count)}
        return found | (square if self.known else {})

    def loss(self, fixed: Params) -> Loss:
        """The loss of one record."""
        return self._denoiser(fixed).loss(network(self.space, self.classes, self.width, Key.seed(0)))

    def normals(self, draws: int) -> int:
        """One for all levels, and a noise a draw."""
        return 1 + draws * self.space.count

    def draw(self, tensors: Params, labels: torch.Tensor, key: Key) -> torch.Tensor:
        """Pictures in [0, 1] out of released tensors. The Gaussians, made noisy, are where drawing begins."""
        denoiser, generator = self._denoiser(tensors), key.torch()
        module = network(self.space, self.classes, self.width, Key.seed(0))
        params = {name: tensors[name].to(self.device) for name, _ in module.named_parameters()}
        made = torch.zeros(len(labels), *self.space.image)
        with torch.no_grad():
            for c in range(self.classes):  # a class at a time: its Gaussian's axes are one matrix for all its pictures
                for rows in torch.split(torch.nonzero(labels == c).flatten(), BATCH):
                    if not len(rows):
                        continue
                    y = torch.full((len(rows),), c, device=self.device)
                    noise = torch.randn(len(y), self.space.count, generator=generator).to(self.device).double()
                    first = denoiser.prior.draw(y, generator) + self.sampler.highest * noise

                    def clean(at: torch.Tensor, level: torch.Tensor, y: torch.Tensor = y) -> torch.Tensor:
                        return denoiser.clean(module, params, at, level=level.double(), y=y[0])

                    made[rows] = self.space.pictures(self.sampler.walk(first, clean, generator)).cpu()
        return made

    def _denoiser(self, tensors: Params) -> Denoiser:
        if not self.known:
            return Denoiser(self.space, self.classes, self.width, Gaussians.public(self.space, self.classes))
        mean, axes, spread = (tensors[name].to(self.device).double() for name in (MEAN, AXES, SPREAD))
        prior = Gaussians(mean * UNIT, axes, (spread * UNIT).square())
        return Denoiser(self.space, self.classes, self.width, prior)


def fixed_of(prior: Gaussians) -> Params:
    """The tensors in which Gaussians are released."""
    return {
        MEAN: (prior.mean / UNIT).float(),
        AXES: prior.axes.float(),
        SPREAD: (prior.variance.sqrt() / UNIT).float(),
    }
