"""A small conditional GAN, written so that its discriminator can be trained with gradients from elsewhere.

The discriminator is a plain sequence with one score per class, so that the gradients of single records are cheap; the
generator sees the discriminator alone, never a record.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.kernels.loss import Loss, Params
from prismfl.nets.diffusion import Learner
from prismfl.nets.merf import ImageGenerator
from prismfl.rng import Key


def build_discriminator(shape: tuple[int, ...], classes: int, *, width: int, key: Key) -> nn.Sequential:
    """Two strided convolutions and a linear layer with one score per class."""
    side = shape[1] // 4
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.integer())
        return nn.Sequential(
            nn.Conv2d(shape[0], width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * side * side, classes),
        )


def doubt_of_real(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The discriminator's loss on one record: it should score high in its class."""
    chosen = torch.arange(output.shape[1], device=output.device) == y
    return F.softplus(-(output[0] * chosen).sum())


def real_loss(discriminator: nn.Module) -> Loss:
    """The loss of one record under the discriminator."""
    return Loss(discriminator, doubt_of_real)


def scores(discriminator: nn.Module, params: Params, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The discriminator's score of each image in its own class."""
    out: torch.Tensor = torch.func.functional_call(discriminator, dict(params), (x,))
    return out.gather(1, y[:, None])[:, 0]


@dataclass(frozen=True)
class Players:
    """The generator with its optimiser, the discriminator with its learner, and a generator of latent noise."""

    network: ImageGenerator
    optimiser: torch.optim.Optimizer
    discriminator: nn.Module
    noise: torch.Generator
    batch: int

    def made(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch of made images with labels drawn at random."""
        device = next(self.network.parameters()).device
        y = torch.randint(self.network.classes, (self.batch,), generator=self.noise).to(device)
        return self.network(torch.randn(self.batch, self.network.latent, generator=self.noise).to(device), y), y

    def fake_gradient(self, learner: Learner, *, clip: float) -> Params:
        """The discriminator's gradient on made images, no longer than the bound that those on records keep to."""
        with torch.no_grad():
            x, y = self.made()
        leaves = {k: p.detach().requires_grad_() for k, p in learner.params.items()}
        loss = F.softplus(scores(self.discriminator, leaves, x, y)).mean()
        gradient = torch.autograd.grad(loss, list(leaves.values()))
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradient]))
        factor = (clip / norm.clamp(min=1e-12)).clamp(max=1.0)
        return {k: factor * g for k, g in zip(leaves, gradient)}

    def improve(self, learner: Learner) -> None:
        """One step of the generator against the discriminator as it is."""
        x, y = self.made()
        loss = F.softplus(-scores(self.discriminator, learner.params, x, y)).mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
