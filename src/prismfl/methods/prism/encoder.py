"""PRISM's public features: the same on every site and at the server, from public images, a public seed and, where the
run has one, a public encoder.

A bank of random networks looks at an image, and beside it a dictionary of public patches or the encoder's layers. No
private record has a part in them, so they cost nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import torch
from pydantic import Field
from torch import nn

from prismfl.core.method import Settings
from prismfl.core.task import Encodes, Task
from prismfl.errors import UserError
from prismfl.kernels.parts import in_parts
from prismfl.nets.block_frame import BlockFrame, fit_blocks
from prismfl.nets.encoders.parted import Parted, part_of
from prismfl.nets.patches import Frame, Patches, fit_frame, learn_patches
from prismfl.nets.random_nets import RandomNet, random_nets
from prismfl.rng import Key
from prismfl.stages import track

LONG = 0.9  # quantile of the public norms beyond which a row of columns is clipped


class FeatureSettings(Settings):
    """All that the public features depend on; the noise, the budget and the shares do not change them."""

    networks: int = Field(32, ge=0, description="random networks whose class means are released")
    network_width: int = Field(16, ge=1, description="channels of each random network")
    network_features: int = Field(64, ge=1, description="features of each random network")
    network_layers: int = Field(1, ge=1, le=3, description="how many of its last layers a random network answers from")
    views: float = Field(0.0, ge=0, le=1, description="how far each network's own fixed augmentation moves images")
    atoms: int = Field(128, ge=1, description="size of the public patch dictionary")
    patch: int = Field(5, ge=2, description="side of a patch in pixels")
    patch_stride: int = Field(1, ge=1, description="pixels from one patch to the next")
    pool: int = Field(3, ge=1, description="patch codes are averaged over pool x pool fields")
    colour: int = Field(8, ge=0, description="coarse colour image of this side beside the codes (colour images only)")
    layers: tuple[str, ...] = Field((), description="layers of the public encoder, side by side (none: all it has)")
    part_shares: tuple[float, ...] = Field(
        (), description="of a record of several parts: what each counts for, in their order (none: all the same)"
    )
    rank: int = Field(256, ge=1, description="leading public directions kept of the patch features or layers")
    power: float = Field(0.4, ge=0, le=0.5, description="flattening of the public spectrum before the clip")
    quantile: float = Field(0.0, ge=0, le=1, description="the clip sits at this quantile of the public norms")
    bank_seed: int = Field(0, description="seed of the public networks and patches")


class Layers(nn.Module):
    """The chosen layers of a public encoder, side by side."""

    def __init__(self, encoder: Encodes, names: tuple[str, ...]) -> None:
        super().__init__()
        self.encoder, self.names = encoder, names

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """One row an image."""
        found = self.encoder.activations(images)
        return torch.cat([found[name] for name in self.names], 1)

    def widths(self, images: torch.Tensor) -> tuple[int, ...]:
        """How many numbers each layer has."""
        found = self.encoder.activations(images[:1])
        return tuple(found[name].shape[1] for name in self.names)

    def by_part(self, images: torch.Tensor) -> list[list[int]]:
        """The same for records of several parts: the layers of each part."""
        found: dict[str, list[int]] = {}
        for name, width in zip(self.names, self.widths(images)):
            found.setdefault(part_of(name), []).append(width)
        return list(found.values())


@dataclass(frozen=True, eq=False)
class PublicFeatures:
    """Public features: the same on every site and at the server."""

    nets: tuple[RandomNet, ...]
    look: Patches | Layers
    frame: Frame

    def coordinates(self, x: torch.Tensor) -> torch.Tensor:
        """Images along the leading public directions, of norm at most 1."""
        # Few images at a time: the maps then stay in the processor's cache.
        return torch.cat([self.frame(self.look(part)) for part in torch.split(x, 64)])


@dataclass(frozen=True)
class _Public:
    """Public images and encoder as a dictionary key: compared by content."""

    digest: int
    images: torch.Tensor
    encoder: Encodes | None

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Public) and self.digest == other.digest


class Linear(nn.Module):
    """A linear classifier on the public features: images to logits."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, features: PublicFeatures, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.look, self.frame = features.look, features.frame
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A row of logits an image."""
        with torch.no_grad():
            parts = [self.frame(self.look(part)) @ self.weight + self.bias for part in torch.split(x, 64)]
        return torch.cat(parts)


def encoder(cfg: FeatureSettings, task: Task) -> PublicFeatures:
    """The features that everybody makes from the task's public images and encoder; kept for the next call."""
    assert task.public is not None
    images = task.public.to(task.device)
    looked = None if task.encoder is None else task.encoder.digest
    content = hashlib.sha256(images.cpu().contiguous().numpy().data).digest()
    public = _Public(hash((content, looked)), images, task.encoder)
    own = {k: getattr(cfg, k) for k in FeatureSettings.model_fields if k != "rounds"}
    if task.parts is not None:
        own["networks"] = 0  # random networks look at pictures alone
    return _features(FeatureSettings(**own), public)


@lru_cache(maxsize=2)
def _features(cfg: FeatureSettings, public: _Public) -> PublicFeatures:
    key, images = Key.seed(cfg.bank_seed).child("prism"), public.images
    look = _patches(cfg, images, key) if public.encoder is None else chosen_layers(cfg, public.encoder)
    with torch.no_grad():
        shown = images[:6000]
        parts = track(in_parts(shown, 250), "features of public images", len(shown), each=len)
        features = torch.cat([look(part) for part in parts])
    if isinstance(public.encoder, Parted) and isinstance(look, Layers):
        return PublicFeatures((), look, blocked(cfg, public.encoder, look.by_part(images), features))
    nets = random_nets(
        images[:1500],
        count=cfg.networks,
        width=cfg.network_width,
        features=cfg.network_features,
        depth=cfg.network_layers,
        views=cfg.views,
        key=key.child("nets"),
    )
    blocks = look.widths(images) if isinstance(look, Layers) else ()
    frame = fit_frame(features, rank=cfg.rank, power=cfg.power, quantile=cfg.quantile, blocks=blocks)
    return PublicFeatures(nets, look, frame)


def blocked(cfg: FeatureSettings, encoder: Parted, layers: list[list[int]], features: torch.Tensor) -> BlockFrame:
    """The frames of all parts. Columns come back from their coordinates, so only long rows of a table are clipped."""
    clips = [LONG if place.encoder.sees == "table" else cfg.quantile for place in encoder.places]
    return fit_blocks(features, layers=layers, shares=cfg.part_shares, rank=cfg.rank, power=cfg.power, quantiles=clips)


def _patches(cfg: FeatureSettings, images: torch.Tensor, key: Key) -> Patches:
    side = min(cfg.patch, images.shape[2] - 1)
    return learn_patches(
        images[:4000],
        atoms=cfg.atoms,
        side=side,
        stride=cfg.patch_stride,
        pool=cfg.pool,
        colour=min(cfg.colour, images.shape[2]),
        key=key.child("patches"),
    )


def chosen_layers(cfg: FeatureSettings, encoder: Encodes) -> Layers:
    """The layers of an encoder that the settings name; all that it has where they name none."""
    unknown = [name for name in cfg.layers if name not in encoder.layers]
    if unknown:
        raise UserError(
            f"Encoder '{encoder.name}' has no layer '{unknown[0]}'; `layers` takes {', '.join(encoder.layers)}."
        )
    names = cfg.layers or encoder.layers
    if isinstance(encoder, Parted):
        names = tuple(name for name in encoder.layers if name in names)
        if {part_of(name) for name in names} != {place.name for place in encoder.places}:
            raise UserError(f"Expected a layer of each part (layers), got {', '.join(names)}.")
    return Layers(encoder, names)
