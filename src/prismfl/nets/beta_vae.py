"""The beta-VAE of one class: dense for tables, two convolutions for images; no layer mixes records.

The decoder works around a start (`loc`, `scale`): numbers are loc + scale * net, the weights of a category are those of
the start times exp(net). With loc 0 and scale 1 it is an ordinary decoder; with noisy moments as the start it begins at
the product of the marginals, and training only has to learn what they miss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from prismfl.kernels.loss import Loss, Params
from prismfl.nets.columns import Columns
from prismfl.rng import Key

MAX_LOG_SPREAD = 1.0
CHUNK = 20_000


@dataclass(frozen=True)
class Shape:
    """The public structure of a beta-VAE: `image` is (channels, side, side) for the convolutional one."""

    columns: Columns
    hidden: tuple[int, ...] = (64, 32)
    latent: int = 3
    image: tuple[int, ...] | None = None
    conv: int = 8


class Decoder(nn.Module):
    """Latent codes to the parameters of each column."""

    loc: torch.Tensor
    scale: torch.Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.columns = shape.columns
        self.net = (
            _conv_decoder(shape) if shape.image else _dense(shape.latent, shape.hidden[::-1], shape.columns.width)
        )
        self.spread = nn.Parameter(torch.zeros(shape.columns.width))
        self.register_buffer("loc", torch.zeros(shape.columns.width))
        self.register_buffer("scale", torch.ones(shape.columns.width))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Means of numbers; logits of binaries, pixels, flags and places of a block."""
        out: torch.Tensor = self.loc + self.scale * self.net(z)
        return out

    def log_spread(self) -> torch.Tensor:
        """Log of the standard deviation of a number around its mean."""
        return self.scale.log() + self.spread.clamp(-4.0, MAX_LOG_SPREAD)

    def sample(self, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Records for latent codes: categories drawn from their weights, numbers with their spread."""
        out = self(z)
        columns = self.columns
        numeric = list(columns.numeric)
        noise = torch.randn(len(z), len(numeric), generator=generator)
        out[:, numeric] += self.log_spread()[numeric].exp() * noise
        out[:, list(columns.binary)] = torch.tanh(out[:, list(columns.binary)] / 2)
        for flag in columns.flags if bool(self.loc.any()) else ():
            out[:, flag] = levelled(out[:, flag], float(torch.sigmoid(self.loc[flag])))
        likely = [*columns.pixels, *columns.flags]
        out[:, likely] = torch.sigmoid(out[:, likely])
        for start, width in columns.blocks:
            out[:, start : start + width] = torch.softmax(out[:, start : start + width], 1)
        return columns.harden(out, generator)


def levelled(logits: torch.Tensor, share: float) -> torch.Tensor:
    """Logits moved together, so that their mean probability is the share that was released.

    A record without a number has a shorter gradient, is clipped less, and would come out too often.
    """
    low, high = -20.0, 20.0
    for _ in range(40 if len(logits) else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if float(torch.sigmoid(logits + middle).mean()) < share else (low, middle)
    return logits + (low + high) / 2


class BetaVAE(nn.Module):
    """Encoder and decoder; `forward` gives the negative evidence bound of each record."""

    centre: torch.Tensor
    stretch: torch.Tensor

    def __init__(self, shape: Shape, beta: float) -> None:
        super().__init__()
        self.shape, self.beta = shape, beta
        width = 2 * shape.latent
        self.encoder = _conv_encoder(shape) if shape.image else _dense(shape.columns.width, shape.hidden, width)
        self.decoder = Decoder(shape)
        self.register_buffer("centre", torch.zeros(shape.columns.width))
        self.register_buffer("stretch", torch.ones(shape.columns.width))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """The negative evidence bound of each record, for latent `noise`."""
        flat = x.flatten(1)
        near = (flat - self.centre) * self.stretch
        code = self.encoder(near * self._there(flat) if self.shape.columns.missing else near)
        mean, log_variance = code[:, : self.shape.latent], code[:, self.shape.latent :].clamp(-8.0, 4.0)
        raw = self.decoder(mean + torch.exp(log_variance / 2) * noise)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(1)
        bound: torch.Tensor = self.misfit(raw, flat) + self.beta * divergence
        return bound

    def misfit(self, raw: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Minus the log-likelihood of each record, without constants."""
        columns, total = self.shape.columns, torch.zeros(len(x), device=x.device)
        if columns.numeric:
            at = list(columns.numeric)
            spread = self.decoder.log_spread()[at]
            misses = 0.5 * ((x[:, at] - raw[:, at]) * torch.exp(-spread)).square() + spread
            # What is not there cannot be missed.
            total = total + (misses * self._there(x)[:, at] if columns.missing else misses).sum(1)
        if columns.binary:
            at = list(columns.binary)
            total = total + F.softplus(-x[:, at] * raw[:, at]).sum(1)
        if columns.pixels or columns.missing:
            at = [*columns.pixels, *columns.flags]
            total = total + (F.softplus(raw[:, at]) - x[:, at] * raw[:, at]).sum(1)
        for start, width in columns.blocks:
            part = slice(start, start + width)
            total = total - (F.log_softmax(raw[:, part], 1) * x[:, part]).sum(1)
        return total

    def _there(self, x: torch.Tensor) -> torch.Tensor:
        """1 for each feature of each record, 0 for a number that is missing."""
        gone = torch.zeros(x.shape[1], x.shape[1])
        gone[list(self.shape.columns.flags), list(self.shape.columns.flagged)] = 1.0
        return 1.0 - x @ gone.to(x)

    def set_start(self, loc: torch.Tensor, scale: torch.Tensor, *, mean: torch.Tensor) -> None:
        """Begin at noisy moments. Inputs are centred at the same moments, which conditions the encoder."""
        with torch.no_grad():
            self.decoder.loc.copy_(loc)
            self.decoder.scale.copy_(scale)
            self.centre.copy_(mean)
            self.stretch.copy_(1.0 / scale)


@dataclass(frozen=True)
class RecordBound(Loss):
    """The loss of one record; `labels` > 0 appends the label as a block of so many places (one generator for all)."""

    labels: int = 0

    def __call__(self, params: Params, x: torch.Tensor, y: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        """The loss of one record; `extra` is its latent noise."""
        record = x.flatten()
        if self.labels:
            record = torch.cat([record, (torch.arange(self.labels, device=y.device) == y).to(record.dtype)])
        out: torch.Tensor = torch.func.functional_call(self.module, dict(params), (record[None], extra[0][None]))
        return out[0]


def build_vae(shape: Shape, *, beta: float, key: Key) -> BetaVAE:
    """A fresh network from `key`; the last layer of the decoder starts small, so that the start shows."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.integer())
        vae = BetaVAE(shape, beta)
    last = vae.decoder.net[-2] if shape.image else vae.decoder.net[-1]
    with torch.no_grad():
        for p in last.parameters():
            p.mul_(0.3)
    return vae


def build_decoder(shape: Shape, tensors: Params) -> Decoder:
    """A decoder with the tensors that came out of a site."""
    with torch.random.fork_rng(devices=[]):
        decoder = Decoder(shape)
    decoder.load_state_dict(dict(tensors), strict=True)
    return decoder


def draw(shape: Shape, tensors: Params, count: int, generator: torch.Generator) -> torch.Tensor:
    """`count` records from a decoder's tensors, in chunks so that memory stays bounded."""
    decoder = build_decoder(shape, tensors)
    parts = []
    with torch.no_grad():
        for start in range(0, count, CHUNK):
            z = torch.randn(min(CHUNK, count - start), shape.latent, generator=generator)
            parts.append(decoder.sample(z, generator))
    return torch.cat(parts) if parts else torch.zeros(0, shape.columns.width)


def _dense(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def _conv_encoder(shape: Shape) -> nn.Sequential:
    assert shape.image is not None
    channels, side = shape.image[0], shape.image[1] // 4
    return nn.Sequential(
        nn.Unflatten(1, shape.image),
        nn.Conv2d(channels, shape.conv, 4, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(shape.conv, 2 * shape.conv, 4, stride=2, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(2 * shape.conv * side * side, 2 * shape.latent),
    )


def _conv_decoder(shape: Shape) -> nn.Sequential:
    assert shape.image is not None
    channels, side = shape.image[0], shape.image[1] // 4
    return nn.Sequential(
        nn.Linear(shape.latent, 2 * shape.conv * side * side),
        nn.Tanh(),
        nn.Unflatten(1, (2 * shape.conv, side, side)),
        nn.ConvTranspose2d(2 * shape.conv, shape.conv, 4, stride=2, padding=1),
        nn.Tanh(),
        nn.ConvTranspose2d(shape.conv, channels, 4, stride=2, padding=1),
        nn.Flatten(),
    )
