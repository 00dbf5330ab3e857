"""The picture of a split: written for few and many sites and classes, and one line where it cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismfl.data.partition_plot import draw
from prismfl.errors import UserError


@pytest.mark.parametrize(("sites", "classes"), [(2, 3), (40, 21)])
def test_a_picture_is_written(sites: int, classes: int, tmp_path: Path) -> None:
    counts = np.arange(sites * classes, dtype=np.int64).reshape(sites, classes)
    path = draw(counts, tuple(f"c{i}" for i in range(classes)), tmp_path / "p.png")
    assert path == tmp_path / "p.png"
    with Image.open(path) as picture:
        assert picture.width > 300


def test_more_sites_are_a_taller_picture(tmp_path: Path) -> None:
    heights = []
    for sites in (4, 20):
        draw(np.ones((sites, 2), dtype=np.int64), ("a", "b"), tmp_path / "p.png")
        with Image.open(tmp_path / "p.png") as picture:
            heights.append(picture.height)
    assert heights[1] > heights[0]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^Cannot write the picture .*\.$"):
        draw(np.ones((2, 2), dtype=np.int64), ("a", "b"), tmp_path / "none" / "p.png")
