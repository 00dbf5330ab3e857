"""What a record *is*, in 32 bytes: a SHA-256 of its decoded content, whatever file it came in.

The same record gives the same print from CSV, Parquet or npz, under another file name, with its columns in another
order, with other bounds, image size, label or class list. A print stays on the site: it is not a release.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.ids import cache_key, canonical_number, canonical_text
from prismfl.data.schema import MISSING
from prismfl.errors import UserError

Prints = list[bytes]
_ROW, _VECTOR, _PICTURE, _BAG = (f"prismfl {kind}\0".encode() for kind in ("row", "vector", "picture", "bag"))
_SINGLE = struct.Struct("<f")
_WORDS = {"true": "1", "false": "0"}
_ROWS = 10_000
_KNOWN = 100_000  # cells whose form is remembered: of fractions there may be as many as cells


def row_print(cells: Mapping[str, object]) -> bytes:
    """The print of a row of a table: every column but the label, in the order of the names, each cell in one form."""
    return _joined(sorted((_framed(canonical_text(name)), _framed(canonical_cell(v))) for name, v in cells.items()))


def row_prints(columns: Mapping[str, Sequence[object]]) -> Prints:
    """The print of each row of a table of columns."""
    framed = []
    for name, values in columns.items():
        known: dict[object, bytes] = {}
        cells = []
        for value in values:
            key = cache_key(value)
            if key not in known:
                known[key] = _framed(canonical_cell(value))
            cells.append(known[key])
        framed.append((_framed(canonical_text(name)), cells))
    names = [name for name, _ in framed]
    return [_joined(sorted(zip(names, row))) for row in zip(*(cells for _, cells in framed))]


def bag_prints(rows: Sequence[Sequence[object]]) -> Prints:
    """The print of each row by its cells alone, whatever their columns are called or in which order they stand: a table
    is the same from CSV, from an npz without names and from arrays."""
    known: dict[object, bytes] = {}

    def cell(value: object) -> bytes:
        key = cache_key(value)
        if key not in known:
            if len(known) >= _KNOWN:
                known.clear()
            known[key] = _framed(canonical_cell(value))
        return known[key]

    return [hashlib.sha256(_BAG + b"".join(sorted(cell(value) for value in row))).digest() for row in rows]


def matrix_prints(x: npt.NDArray[Any]) -> Prints:
    """The same of a matrix, some rows at a time: a number of Python's takes eight times the memory."""
    parts = (bag_prints(x[i : i + _ROWS].tolist()) for i in range(0, len(x), _ROWS))
    return [one for part in parts for one in part]


def canonical_cell(value: object) -> str:
    """A cell in one form: an empty one is "", a number goes by its value, text by its seen characters.

    Fractions are compared as float32, so that a table stored in single precision is still the same table.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="backslashreplace")
    text = canonical_text("" if value is None else str(value))
    small = text.lower()
    if small in MISSING:
        return ""
    return _number(_WORDS.get(small, text))


def _number(text: str) -> str:
    """A number by its value, other text as it is."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not abs(value) < 2**53:  # beyond what a float tells apart
        return canonical_number(text) or text
    if not value.is_integer():
        [value] = _SINGLE.unpack(_SINGLE.pack(value))
    return str(int(value)) if value.is_integer() else repr(value)


def vector_prints(x: npt.NDArray[Any]) -> Prints:
    """The print of each row of a matrix of numbers, which has no column names."""
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(x, dtype="<f4") + np.float32(0)  # -0 becomes 0
    return [hashlib.sha256(_VECTOR + row.tobytes()).digest() for row in rows]


def picture_print(pixels: npt.NDArray[Any]) -> bytes:
    """The print of a picture (h, w), (1 or 3, h, w) or (h, w, 1 or 3) at its native size, as 8 bits a channel.

    Bytes count as they are, 16 bits by their upper part, floats from [0, 1]. Three equal channels are grey.
    """
    shown = _eight_bits(pixels)
    if shown.ndim == 3:
        shown = shown if shown.shape[0] in (1, 3) else shown.transpose(2, 0, 1)
        if (shown == shown[:1]).all():
            shown = shown[0]
    if shown.ndim not in (2, 3):
        raise UserError(f"Expected a picture as (h, w) or with 1 or 3 channels, got shape {pixels.shape}.")
    head = struct.pack(f"<{1 + shown.ndim}I", shown.ndim, *shown.shape)
    return hashlib.sha256(_PICTURE + head + np.ascontiguousarray(shown).tobytes()).digest()


def _eight_bits(pixels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if pixels.ndim == 3 and not {pixels.shape[0], pixels.shape[2]} & {1, 3}:
        raise UserError(f"Expected a picture as (h, w) or with 1 or 3 channels, got shape {pixels.shape}.")
    if pixels.dtype == np.uint8:
        return pixels
    top = 65535.0 if pixels.dtype == np.uint16 else 1.0
    return np.rint(np.clip(pixels.astype(np.float64) / top, 0, 1) * 255).astype(np.uint8)


def _framed(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(4, "little") + raw


def _joined(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    return hashlib.sha256(_ROW + b"".join(name + cell for name, cell in pairs)).digest()
