"""Grids of images: where each one lies, and that the file holds what was laid out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from prismfl.data.pictures import grid, save_grid, save_sheet


def test_images_lie_row_by_row_on_white() -> None:
    images = torch.arange(3).float()[:, None, None, None].expand(3, 1, 2, 2) / 10
    sheet = grid(images, 2)
    assert sheet.shape == (1, 5, 5)
    assert sheet[0].tolist() == [
        [0.0, 0.0, 1.0, torch.tensor(0.1).item(), torch.tensor(0.1).item()],
        [0.0, 0.0, 1.0, torch.tensor(0.1).item(), torch.tensor(0.1).item()],
        [1.0] * 5,
        [torch.tensor(0.2).item()] * 2 + [1.0] * 3,
        [torch.tensor(0.2).item()] * 2 + [1.0] * 3,
    ]


def test_a_gap_of_nothing_joins_the_images() -> None:
    assert grid(torch.zeros(4, 3, 2, 2), 2, gap=0).shape == (3, 4, 4)


def test_a_sheet_is_enlarged_pixel_by_pixel(tmp_path: Path) -> None:
    sheet = torch.tensor([[[0.0, 1.0]]])
    save_sheet(sheet, tmp_path / "deep" / "s.png", scale=3)
    pixels = np.asarray(Image.open(tmp_path / "deep" / "s.png"))
    assert pixels.shape == (3, 6)
    assert pixels[0].tolist() == [0, 0, 0, 255, 255, 255]


def test_colour_stays_colour_and_values_are_bounded(tmp_path: Path) -> None:
    sheet = torch.tensor([2.0, -1.0, 0.2])[:, None, None]
    save_sheet(sheet, tmp_path / "s.png", scale=1)
    assert np.asarray(Image.open(tmp_path / "s.png"))[0, 0].tolist() == [255, 0, 51]


def test_a_class_is_a_row_and_missing_images_are_white(tmp_path: Path) -> None:
    x = torch.zeros(3, 1, 1, 1)
    save_grid(x, torch.tensor([1, 1, 1]), tmp_path / "g.png", classes=("a", "b"), columns=2)
    pixels = np.asarray(Image.open(tmp_path / "g.png"))[::2, ::2]
    assert pixels[0].tolist() == [255, 255, 255]  # no image of class a
    assert pixels[2].tolist() == [0, 255, 0]  # two of class b, and the gap
