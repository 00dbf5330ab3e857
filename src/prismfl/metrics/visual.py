"""How far synthetic images are from private ones, to the eye. For the site's own use: it sees private images.

The yardstick is held-out real images: a synthetic image should be no closer to a private one than a stranger's is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from prismfl.core.records import as_floats
from prismfl.kernels.parts import at_a_time, in_parts
from prismfl.metrics.leakage import ssim
from prismfl.stages import track


@dataclass(frozen=True)
class Visual:
    """Medians over the synthetic images, and the nearest private image of each (for a picture that stays here)."""

    distance_synthetic: float
    distance_held_out: float
    closest_synthetic: float
    closest_held_out: float
    ssim_private: float
    ssim_held_out: float
    ssim_seed: float
    copies: int
    nearest: torch.Tensor

    def as_dict(self) -> dict[str, float | int]:
        """The numbers by name, without the nearest private images."""
        return {k: v for k, v in self.__dict__.items() if k != "nearest"}


def compare(
    synthetic: torch.Tensor, *, private: torch.Tensor, held_out: torch.Tensor, seeds: torch.Tensor | None
) -> Visual:
    """Distances are root mean squares a pixel. `seeds` are the public images the synthetic ones started from."""
    near, where = _nearest(synthetic, private)
    held, at = _nearest(held_out, private)
    return Visual(
        distance_synthetic=float(near.median()),
        distance_held_out=float(held.median()),
        closest_synthetic=float(near.min()),
        closest_held_out=float(held.min()),
        ssim_private=float(_ssim(synthetic, private, where).median()),
        ssim_held_out=float(_ssim(held_out, private, at).median()),
        ssim_seed=float("nan") if seeds is None else float(_ssim(synthetic, seeds, torch.arange(len(seeds))).median()),
        copies=int((near < 1e-6).sum()),
        nearest=where,
    )


def _ssim(images: torch.Tensor, others: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Of each image and the one of the others at its place, some at a time."""
    parts = zip(in_parts(images, 500), torch.split(where, at_a_time(images.shape[1:], 500)))
    return torch.cat([ssim(as_floats(part), as_floats(others[rows])) for part, rows in parts])


def _nearest(images: torch.Tensor, private: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    images, scale = as_floats(images), images[0].numel() ** 0.5
    best = torch.full((len(images),), float("inf"))
    where = torch.zeros(len(images), dtype=torch.int64)
    size = at_a_time(private.shape[1:], 4000)
    for start in track(range(0, len(private), size), "comparing", -(-len(private) // size)):
        block = as_floats(private[start : start + size]).flatten(1)
        found, index = torch.cdist(images.flatten(1), block, compute_mode="donot_use_mm_for_euclid_dist").min(1)
        closer = found < best
        best[closer], where[closer] = found[closer], index[closer] + start
    return best / scale, where
