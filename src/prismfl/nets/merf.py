"""Random-feature mean embeddings (DP-MERF) and the small generator that is trained to match them.

The features of a record have norm 1 whatever the record, so sums of them have sensitivity 1 without a clip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from prismfl.kernels.loss import Params
from prismfl.nets.training import cosine
from prismfl.rng import Key

CHUNK = 1000


@dataclass(frozen=True, eq=False)
class Fourier:
    """cos and sin of public random projections; `lengths` are kernel widths in units of the root mean square pixel."""

    projections: torch.Tensor

    @classmethod
    def draw(cls, dimensions: int, *, features: int, lengths: tuple[float, ...], key: Key) -> Fourier:
        """Public projections from a key, with kernel widths in turn."""
        pairs = max(1, features // 2)
        normal = torch.randn(pairs, dimensions, generator=key.torch())
        width = torch.tensor([lengths[i % len(lengths)] for i in range(pairs)]) * math.sqrt(dimensions)
        return cls(normal / width[:, None])

    @property
    def pairs(self) -> int:
        """How many projections there are, each with a cosine and a sine."""
        return len(self.projections)

    def __call__(self, x: torch.Tensor, pick: torch.Tensor | None = None) -> torch.Tensor:
        """Rows of norm 1; `pick` keeps some of the pairs (norm 1 again)."""
        angles = x.flatten(1) @ (self.projections if pick is None else self.projections[pick]).to(x).T
        return torch.cat([torch.cos(angles), torch.sin(angles)], 1) / math.sqrt(angles.shape[1])


class ImageGenerator(nn.Module):
    """Noise and a label to an image in [0, 1]: a linear layer and two transposed convolutions."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, latent: int, width: int) -> None:
        super().__init__()
        self.classes, self.latent = classes, latent
        side = shape[1] // 4
        self.net = nn.Sequential(
            nn.Linear(latent + classes, 8 * width),
            nn.LayerNorm(8 * width),
            nn.ReLU(),
            nn.Linear(8 * width, 2 * width * side * side),
            nn.Unflatten(1, (2 * width, side, side)),
            nn.GroupNorm(2, 2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.GroupNorm(2, width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, shape[0], 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """An image per row of latent numbers `z` and label."""
        label = (y[:, None] == torch.arange(self.classes, device=y.device)).to(z)
        out: torch.Tensor = self.net(torch.cat([z, label], 1))
        return out


@dataclass(frozen=True)
class ImageRecipe:
    """The public structure of a generator."""

    shape: tuple[int, ...]
    classes: int
    latent: int
    width: int

    def build(self, key: Key) -> ImageGenerator:
        """A fresh network drawn from `key`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.integer())
            return ImageGenerator(self.shape, self.classes, latent=self.latent, width=self.width)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the network's tensors."""
        return {name: tuple(t.shape) for name, t in self.build(Key.seed(0)).state_dict().items()}

    def draw(self, tensors: Params, labels: torch.Tensor, key: Key) -> torch.Tensor:
        """Images of the given classes from a network that was sent; its structure is ours, not the sender's."""
        network = self.build(Key.seed(0))
        network.load_state_dict({k: tensors[k] for k in network.state_dict()}, strict=True)
        generator = key.torch()
        with torch.no_grad():
            parts = [
                network(torch.randn(len(part), self.latent, generator=generator), part)
                for part in torch.split(labels, CHUNK)
            ]
        return torch.cat(parts) if parts else torch.zeros(0, *self.shape)


@dataclass(frozen=True)
class MatchingSteps:
    """Public settings of the generator's training."""

    steps: int
    per_class: int
    picked: int
    lr: float


def match(
    network: ImageGenerator,
    features: Fourier,
    means: torch.Tensor,
    *,
    present: torch.Tensor,
    how: MatchingSteps,
    key: Key,
) -> None:
    """Train until the generated means meet `means` (a row per class, of released numbers: post-processing).

    The squared norm of a mean over few images is biased upwards; without its bias taken off, the generator would trade
    variety for it.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=how.lr)
    generator = key.torch()
    classes = torch.nonzero(present).flatten()
    labels, n = classes.repeat_interleave(how.per_class), how.per_class
    for step in range(how.steps if len(classes) else 0):
        optimiser.param_groups[0]["lr"] = cosine(how.lr, step, how.steps)
        pick = torch.randperm(features.pairs, generator=generator)[: how.picked]
        columns = torch.cat([pick, pick + features.pairs])
        target = means[classes][:, columns] * math.sqrt(features.pairs / len(pick))
        images = network(torch.randn(len(labels), network.latent, generator=generator), labels)
        found = features(images, pick).reshape(len(classes), n, -1).mean(1)
        squares = (n * found.square().sum(1) - 1.0) / (n - 1)
        loss = (squares - 2.0 * (found * target).sum(1)).sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
