"""Grids of images as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image


def grid(images: torch.Tensor, columns: int, *, gap: int = 1) -> torch.Tensor:
    """Images (n, c, h, w) in [0, 1] side by side, row by row, on a white ground."""
    n, c, h, w = images.shape
    rows = -(-n // columns)
    sheet = torch.ones(c, rows * (h + gap) - gap, columns * (w + gap) - gap)
    for i, image in enumerate(images):
        top, left = (i // columns) * (h + gap), (i % columns) * (w + gap)
        sheet[:, top : top + h, left : left + w] = image
    return sheet


def save_sheet(sheet: torch.Tensor, path: Path, *, scale: int = 2) -> None:
    """Write a sheet (c, h, w) in [0, 1] as a picture, each pixel `scale` times as wide and high."""
    pixels = (sheet.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    pixels = np.repeat(np.repeat(pixels, scale, axis=0), scale, axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(path)


def save_grid(x: torch.Tensor, y: torch.Tensor, path: Path, *, classes: Sequence[str], columns: int = 10) -> None:
    """One row a class, the first `columns` images of each."""
    rows = []
    for c in range(len(classes)):
        mine = x[y == c][:columns]
        rows.append(torch.cat([mine, torch.ones(columns - len(mine), *x.shape[1:])]))
    save_sheet(grid(torch.cat(rows), columns), path)
