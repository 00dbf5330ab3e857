"""Readers of stored sets: IDX, picture sheets, npz without code, and tables of text files, in small."""

from __future__ import annotations

import gzip
import io
import struct

import numpy as np
import pytest
from PIL import Image

from prismfl.data.stored import read_idx, read_npz, read_sheet
from prismfl.errors import UserError


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4)])
def test_an_idx_array_comes_back(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    found = read_idx(idx(array))
    assert found.shape == shape
    assert np.array_equal(found, array)
    assert found.dtype == np.uint8


def test_the_tiles_of_a_sheet_come_row_by_row() -> None:
    """Two rows of three tiles of 2 x 2, each of its own colour."""
    sheet = np.zeros((4, 6, 3), dtype=np.uint8)
    for i in range(6):
        row, column = divmod(i, 3)
        sheet[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = (10 * i, 0, 7)
    raw = io.BytesIO()
    Image.fromarray(sheet).save(raw, "PNG")
    tiles = read_sheet(raw.getvalue(), columns=3, side=2)
    assert tiles.shape == (6, 3, 2, 2)
    assert tiles[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]
    assert set(tiles[:, 2].flatten().tolist()) == {7}


def test_within_a_tile_rows_are_rows() -> None:
    sheet = np.zeros((2, 2, 3), dtype=np.uint8)
    sheet[0, 1] = 9
    raw = io.BytesIO()
    Image.fromarray(sheet).save(raw, "PNG")
    (tile,) = read_sheet(raw.getvalue(), columns=1, side=2)
    assert tile[0].tolist() == [[0, 9], [0, 0]]


def test_a_sheet_that_cannot_be_read_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^This Pillow cannot read the picture sheet \(.*\): pip install -U pillow"):
        read_sheet(b"no picture", columns=1, side=2)


def test_npz_content_is_read_by_name() -> None:
    raw = io.BytesIO()
    np.savez(raw, train=np.arange(3), test=np.arange(2))
    found = read_npz(raw.getvalue())
    assert {k: v.tolist() for k, v in found.items()} == {"train": [0, 1, 2], "test": [0, 1]}


def test_npz_content_that_is_code_is_refused() -> None:
    raw = io.BytesIO()
    np.savez(raw, x=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_npz(raw.getvalue())
