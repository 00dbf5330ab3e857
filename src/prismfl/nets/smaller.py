"""Large pictures as the public patches and random networks see them: smaller.

Both are made for pictures of some tens of pixels: their work grows with the pixels, and a patch of five pixels of a
photograph shows nothing. So what is larger than LARGE is looked at with LOOKED pixels a side, private, public and
synthetic pictures alike. An encoder has a side of its own.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

LARGE, LOOKED = 64, 32


def smaller(images: torch.Tensor) -> torch.Tensor:
    """Pictures (n, c, h, w) as they are, or with their longer side at LOOKED if it is above LARGE. Differentiable."""
    height, width = images.shape[2:]
    long = max(height, width)
    if long <= LARGE:
        return images
    size = [max(1, round(side * LOOKED / long)) for side in (height, width)]
    return F.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)
