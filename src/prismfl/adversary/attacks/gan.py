"""The GAN attack on collaborative learning (Hitaj, Ateniese, Perez-Cruz 2017): a site draws a class it does not hold.

A malicious site trains a generator against the shared model that it receives each round; the model plays the
discriminator, which the others' records have trained. The site sends nothing unusual: it only looks.

Differs from the paper: the generator is linear, on the principal components of the attacker's own pictures of *other*
classes, and is held near their distribution (a KL term), which keeps its pictures smooth and different from each
other; it does not poison the training with made records, so a run's transcript is all that the attack needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from prismfl.adversary.attacks.inversion import Predict
from prismfl.errors import UserError
from prismfl.nets.augment import affine
from prismfl.rng import Key

LEAST_RECORDS = 10
DRAWN = 100


@dataclass(frozen=True)
class GanEffort:
    """How hard to try. `prior` weighs the likeness to the attacker's own pictures against the model's opinion."""

    steps: int = 200
    batch: int = 32
    lr: float = 0.03
    rank: int = 40
    prior: float = 0.02


@dataclass(frozen=True)
class Generator:
    """Standard normal rows to pictures: an affine map to whitened components of the attacker's own pictures."""

    mean: torch.Tensor
    basis: torch.Tensor
    centre: torch.Tensor
    spread: torch.Tensor
    shape: tuple[int, ...]

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """Pictures for latent numbers."""
        flat = self.mean + (z @ self.spread.T + self.centre) @ self.basis
        return flat.clamp(0.0, 1.0).reshape(-1, *self.shape)

    def distance(self) -> torch.Tensor:
        """KL divergence of the components from those of the attacker's own pictures, a standard normal."""
        log_volume: torch.Tensor = torch.linalg.slogdet(self.spread)[1]
        square = (self.spread**2).sum() + (self.centre**2).sum()
        return 0.5 * (square - len(self.centre) - 2.0 * log_volume)

    def draw(self, count: int, key: Key) -> torch.Tensor:
        """Pictures drawn with the randomness of `key`, without a graph for gradients."""
        with torch.no_grad():
            return self(torch.randn(count, len(self.centre), generator=key.torch()))


@dataclass(frozen=True)
class SeenModels:
    """The models that a site received, and for each class to draw its own records of other classes."""

    models: tuple[Predict, ...]
    own: tuple[tuple[int, torch.Tensor], ...] = field(repr=False)
    key: Key


def draw_hidden(seen: SeenModels) -> torch.Tensor:
    """Pictures (classes, DRAWN, *shape) of each class to draw."""
    drawn = []
    for label, own in seen.own:
        made = train(seen.models, own, label, effort=GanEffort(), key=seen.key.child(label))
        drawn.append(made.draw(DRAWN, seen.key.child(label, "draw")))
    return torch.stack(drawn)


def start(own: torch.Tensor, rank: int) -> Generator:
    """The generator that draws mixtures of the attacker's own pictures."""
    if len(own) < LEAST_RECORDS:
        raise UserError(f"Expected an attacker with at least {LEAST_RECORDS} own records, got {len(own)}.")
    flat = own.flatten(1)
    mean = flat.mean(0)
    _, sizes, directions = torch.linalg.svd(flat - mean, full_matrices=False)
    count = min(rank, len(flat) - 1, flat.shape[1])
    basis = (sizes[:count] / len(flat) ** 0.5)[:, None] * directions[:count]
    # A little less spread than the own pictures have: the class to be drawn is one of many.
    return Generator(mean, basis, torch.zeros(count), 0.8 * torch.eye(count), tuple(own.shape[1:]))


def train(models: Sequence[Predict], own: torch.Tensor, label: int, *, effort: GanEffort, key: Key) -> Generator:
    """A generator of class `label` from the models of the rounds, of which the later half counts.

    Each picture is moved and turned a little before a model sees it, so that no pixel pattern of one model suffices.
    """
    made, noise = start(own, effort.rank), key.child("noise").torch()
    made.centre.requires_grad_()
    made.spread.requires_grad_()
    optimiser = torch.optim.Adam([made.centre, made.spread], lr=effort.lr)
    target = torch.full((effort.batch,), label)
    for _ in range(effort.steps):
        pick = int(torch.randint(len(models) // 2, len(models), (1,), generator=noise))
        x = made(torch.randn(effort.batch, len(made.centre), generator=noise))
        loss = F.cross_entropy(models[pick](affine(x, noise)), target) + effort.prior * made.distance()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return Generator(made.mean, made.basis, made.centre.detach(), made.spread.detach(), made.shape)
