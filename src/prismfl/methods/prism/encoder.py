"""PRISM's public features: the same on every site and at the server, from public images and a public seed alone.

A bank of random networks and a dictionary of public patches look at an image. No private record has a part in them, so
they cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from pydantic import Field

from prismfl.core.method import Settings
from prismfl.core.task import Task
from prismfl.nets.patches import Frame, Patches, fit_frame, learn_patches
from prismfl.nets.random_nets import RandomNet, random_nets
from prismfl.rng import Key


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
    rank: int = Field(256, ge=1, description="leading public directions kept of the patch features")
    power: float = Field(0.4, ge=0, le=0.5, description="flattening of the public spectrum before the clip")
    quantile: float = Field(0.0, ge=0, le=1, description="the clip sits at this quantile of the public norms")
    bank_seed: int = Field(0, description="seed of the public networks and patches")


@dataclass(frozen=True, eq=False)
class Encoder:
    """Public features: the same on every site and at the server, from public images and a public seed."""

    nets: tuple[RandomNet, ...]
    patches: Patches
    frame: Frame

    def coordinates(self, x: torch.Tensor) -> torch.Tensor:
        """Images along the leading public directions, of norm at most 1."""
        # Few images at a time: the maps of patch codes then stay in the processor's cache.
        return torch.cat([self.frame(self.patches(part)) for part in torch.split(x, 64)])


@dataclass(frozen=True)
class _Public:
    """Public images as a dictionary key: compared by content."""

    digest: int
    images: torch.Tensor

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Public) and self.digest == other.digest


def encoder(cfg: FeatureSettings, task: Task) -> Encoder:
    """The encoder that everybody makes from the task's public images; kept for the next call."""
    assert task.public is not None
    images = task.public.to(task.device)
    public = _Public(hash(images.cpu().numpy().tobytes()), images)
    own = {k: getattr(cfg, k) for k in FeatureSettings.model_fields if k != "rounds"}
    return _encoder(FeatureSettings(**own), public)


@lru_cache(maxsize=2)
def _encoder(cfg: FeatureSettings, public: _Public) -> Encoder:
    key, images = Key.seed(cfg.bank_seed).child("prism"), public.images
    nets = random_nets(
        images[:1500],
        count=cfg.networks,
        width=cfg.network_width,
        features=cfg.network_features,
        depth=cfg.network_layers,
        views=cfg.views,
        key=key.child("nets"),
    )
    side = min(cfg.patch, images.shape[2] - 1)
    patches = learn_patches(
        images[:4000],
        atoms=cfg.atoms,
        side=side,
        stride=cfg.patch_stride,
        pool=cfg.pool,
        colour=min(cfg.colour, images.shape[2]),
        key=key.child("patches"),
    )
    with torch.no_grad():
        features = torch.cat([patches(part) for part in torch.split(images[:6000], 250)])
    return Encoder(nets, patches, fit_frame(features, rank=cfg.rank, power=cfg.power, quantile=cfg.quantile))
