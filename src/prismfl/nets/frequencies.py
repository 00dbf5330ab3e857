"""Diffusion among the low frequencies of a picture, around a Gaussian of each class.

A picture is its lowest cosine coefficients, an orthonormal public transform: a short vector, so that the denoiser is a
few linear layers and the gradients of single records cost little more than a plain step. What is known of a class
beforehand (a mean and a covariance) denoises in closed form; the network learns what this misses.

Everything that is made of a record before the network sees it is computed in double and then rounded, so that it does
not hang on who else is in the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from prismfl.kernels.loss import Loss, Params
from prismfl.rng import Key

LEVEL_MEAN, LEVEL_SPREAD = -0.3, 1.2  # of the log of the noise levels in training; pixels run from 0 to 1
WAVES = (0.5, 1.0, 2.0, 4.0)
GAIN = 1.4
EDGE = 1e-4  # quantiles of the noise levels lie between this and one less


@dataclass(frozen=True)
class Coefficients:
    """The `kept` x `kept` lowest cosine coefficients of each channel of a square picture."""

    image: tuple[int, ...]
    kept: int

    @property
    def count(self) -> int:
        """Numbers of a picture."""
        return self.image[0] * self.kept**2

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures (..., channels, side, side) as rows (..., count), in double."""
        waves = _waves(self.image[1], self.kept).to(x.device)
        return (waves @ x.double() @ waves.T).flatten(-3)

    def pictures(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows as pictures in [0, 1]."""
        waves = _waves(self.image[1], self.kept).to(rows.device)
        square = rows.double().reshape(*rows.shape[:-1], self.image[0], self.kept, self.kept)
        return (waves.T @ square @ waves).float().clamp(0.0, 1.0)

    def frequency(self) -> torch.Tensor:
        """The squared frequency of each coefficient."""
        one = torch.arange(self.kept).double().square()
        return (one[:, None] + one[None, :]).flatten().repeat(self.image[0])


@cache
def _waves(side: int, kept: int) -> torch.Tensor:
    at, low = (torch.arange(side).double() + 0.5) * (math.pi / side), torch.arange(kept).double()
    rows = torch.cos(low[:, None] * at[None, :]) * math.sqrt(2.0 / side)
    rows[0] /= math.sqrt(2.0)
    return rows


@dataclass(frozen=True, eq=False)
class Gaussians:
    """A Gaussian a class: its mean, the axes (columns) of its covariance, and the variance along each. In double."""

    mean: torch.Tensor
    axes: torch.Tensor
    variance: torch.Tensor

    @classmethod
    def public(cls, space: Coefficients, classes: int) -> Gaussians:
        """What pictures are like that nothing is known of: dim, and smooth."""
        variance = 25.0 / (1.0 + space.frequency() / 4.0) ** 1.25
        mean = torch.zeros(space.count, dtype=torch.float64)
        mean[:: space.kept**2] = 0.25 * space.image[1]
        axes = torch.eye(space.count, dtype=torch.float64)
        return cls(*(t.expand(classes, *t.shape) for t in (mean, axes, variance)))

    def clean(self, rows: torch.Tensor, level: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean picture behind noisy rows (..., draws, count) of levels (..., draws) and a class (...)."""
        centre, axes, variance = (_of(y, t) for t in (self.mean[:, None], self.axes, self.variance[:, None]))
        along = (rows - centre) @ axes
        return centre + (along * (variance / (variance + level[..., None].square()))) @ axes.mT

    def doubt(self, level: torch.Tensor) -> torch.Tensor:
        """The root mean square error of `clean` where the Gaussians are right, over all classes."""
        variance, noise = self.variance.mean(0), level[..., None].square()
        return (variance * noise / (variance + noise)).mean(-1).sqrt()

    def size(self, level: torch.Tensor) -> torch.Tensor:
        """The root mean square number of a noisy row."""
        return (self.variance.mean() + level.square()).sqrt()

    def draw(self, y: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A row for each label."""
        drawn = torch.randn(len(y), self.mean.shape[1], generator=generator).double()
        return self.mean[y] + ((drawn * self.variance[y].sqrt())[:, None, :] @ self.axes[y].mT)[:, 0]


def _of(y: torch.Tensor, by_class: torch.Tensor) -> torch.Tensor:
    """What each label's class has; unlike plain indexing, also for one record under vmap."""
    return by_class.index_select(0, y.reshape(-1)).reshape(*y.shape, *by_class.shape[1:])


@dataclass(frozen=True)
class Denoiser:
    """The public structure of a denoiser, and the Gaussians that it starts from."""

    space: Coefficients
    classes: int
    width: int
    prior: Gaussians

    def build(self, key: Key) -> nn.Sequential:
        """A fresh network: what it says of a picture is nothing yet."""
        return network(self.space, self.classes, self.width, key)

    def seen(self, rows: torch.Tensor, level: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the network sees of noisy rows (..., draws, count), and the Gaussians' guess.

        A label is as long as the root of the number of classes, as in EDM: beside hundreds of numbers about 1 a label
        of length 1 has next to no part of a clipped gradient, and classes are learnt last.
        """
        guess = self.prior.clean(rows, level, y)
        told = ((level.log() - LEVEL_MEAN) / LEVEL_SPREAD)[..., None] * torch.tensor(WAVES, device=level.device)
        label = math.sqrt(self.classes) * (torch.arange(self.classes, device=y.device) == y[..., None]).to(rows)
        parts = [
            rows / self.prior.size(level)[..., None],
            guess / self.prior.variance.mean().sqrt(),
            label[..., None, :].expand(*level.shape, -1),
            torch.cos(told),
            torch.sin(told),
        ]
        return torch.cat(parts, -1).float(), guess

    def clean(
        self, module: nn.Module, params: Params, rows: torch.Tensor, *, level: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """The pictures behind noisy rows (n, count) of one class, in double."""
        seen, guess = self.seen(rows, level, y)
        told = torch.func.functional_call(module, dict(params), (seen,))
        clean: torch.Tensor = guess + self.prior.doubt(level)[:, None] * told.double()
        return clean

    def loss(self, module: nn.Module) -> Misfit:
        """The loss of one record."""
        return Misfit(module, squares, self)

    def normals(self, draws: int) -> int:
        """How many normal numbers a record takes: one for its noise levels, and its noises."""
        return 1 + draws * self.space.count


def network(space: Coefficients, classes: int, width: int, key: Key) -> nn.Sequential:
    """Linear layers with two hidden widths; the last starts at zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.integer())
        layers = (
            nn.Linear(2 * space.count + classes + 2 * len(WAVES), width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, space.count),
        )  # fmt: skip
    for layer in layers[:3:2]:
        assert isinstance(layer, nn.Linear)
        nn.init.normal_(
            layer.weight, std=GAIN / math.sqrt(layer.in_features), generator=key.child(layer.in_features).torch()
        )
        nn.init.zeros_(layer.bias)
    nn.init.zeros_(layers[-1].weight)
    nn.init.zeros_(layers[-1].bias)
    return nn.Sequential(*layers)


def squares(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean squared error of a record's draws."""
    return (output[0] - target).square().mean()


@dataclass(frozen=True)
class Misfit(Loss):
    """The loss of one record: the mean over its noise draws, made of its own normal numbers.

    One normal number places the noise levels, which share the distribution equally among the draws: so a record's
    gradient hangs less on which levels it happened to get.
    """

    denoiser: Denoiser

    def inputs(self, x: torch.Tensor, y: torch.Tensor, *extra: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the network sees of the record's draws, and what it should say: the picture less the guess."""
        prior, count = self.denoiser.prior, self.denoiser.space.count
        z = extra[0].double()
        level, noise = levels(z[0], (len(z) - 1) // count), z[1:].reshape(-1, count)
        clean = self.denoiser.space.of(x)
        seen, guess = self.denoiser.seen(clean + level[:, None] * noise, level, y)
        return seen, ((clean - guess) / prior.doubt(level)[:, None]).float()


def levels(z: torch.Tensor, draws: int) -> torch.Tensor:
    """Noise levels of a record's draws, one in each equal part of their distribution, placed by a normal number."""
    place = 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))
    share = (torch.arange(draws, device=z.device) + place) / draws
    return torch.exp(
        LEVEL_MEAN + LEVEL_SPREAD * math.sqrt(2.0) * torch.erfinv(2.0 * share.clamp(EDGE, 1.0 - EDGE) - 1.0)
    )
