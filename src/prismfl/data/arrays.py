"""npz archives: `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test`. Pickled content is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.archive import read_members
from prismfl.data.files import Bounds, Records
from prismfl.data.ids import id_column
from prismfl.data.prints import picture_print, vector_prints
from prismfl.data.schema import check_classes, class_codes, listed, plain
from prismfl.data.spec import Kind
from prismfl.errors import UserError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


def read_arrays(
    path: Path, *, classes: Sequence[str] | None, bounds: Bounds | None, unit: str | None, natural: str | None
) -> Records:
    arrays = read_members(path)
    parts = [("x", "y")] if "x" in arrays else [("x_train", "y_train"), ("x_test", "y_test")]
    wanted = [key for part in parts for key in part] + [key for key in (unit, natural) if key is not None]
    for key in wanted:
        if key not in arrays:
            raise UserError(f"Expected array '{key}' in {path}, got {listed(arrays) or 'none'}.")
    if not classes:
        raise UserError(f"Expected declared classes for the labels of {path}; they are never taken from the data.")
    names = tuple(plain(name) for name in classes)
    check_classes(names)
    read = [
        (_features(arrays[x], bounds, f"{x} of {path}"), _labels(arrays[y], names, f"{y} of {path}")) for x, y in parts
    ]
    for (x, y), (x_name, y_name) in zip(read, parts):
        if len(x) != len(y) or not len(x):
            raise UserError(f"Expected as many {y_name} as {x_name} in {path}, got {len(y)} and {len(x)}.")
    ids = {key: id_column(arrays[key], key) for key in (unit, natural) if key is not None}
    for key, column in ids.items():
        if len(column) != len(read[0][1]):
            raise UserError(f"Expected {len(read[0][1])} values in '{key}' of {path}, got {len(column)}.")
    kind: Kind = "image" if read[0][0].ndim == 4 else "table"
    return Records(
        kind,
        *read[0],
        names,
        _prints(arrays[parts[0][0]], read[0][0]),
        unit=ids.get(unit or ""),
        natural=ids.get(natural or ""),
        test=read[1] if len(read) == 2 else None,
    )


def _prints(raw: Array, scaled: Floats) -> list[bytes]:
    """Of the numbers as stored; pictures of other numbers have no range but the declared one."""
    if raw.ndim == 2:
        return vector_prints(raw)
    pictures = _layout(raw, "x") if raw.dtype in (np.uint8, np.uint16) else scaled
    return [picture_print(picture) for picture in pictures]


def _features(x: Array, bounds: Bounds | None, where: str) -> Floats:
    if x.dtype.kind not in "uifb":
        raise UserError(f"Expected numbers in {where}, got {x.dtype}.")
    if 0 in x.shape[1:]:
        raise UserError(f"Expected at least one number a record in {where}, got shape {x.shape}.")
    bad = np.argwhere(~np.isfinite(x)) if x.dtype.kind == "f" else np.empty((0, x.ndim), dtype=np.int64)
    if len(bad):
        column = f", column {bad[0][1] + 1}" if x.ndim == 2 else ""
        raise UserError(f"NaN or infinite value in {where}, row {bad[0][0] + 1}{column}.")
    if x.ndim == 2:
        if bounds is None:
            raise UserError(f"Expected declared bounds for {where}; they are never taken from the data.")
        low, high = bounds
        return (2 * (np.clip(x.astype(np.float64), low, high) - low) / (high - low) - 1).astype(np.float32)
    low, high = bounds or (0.0, 255.0 if x.dtype == np.uint8 else 1.0)
    if bounds is None and x.size and (x.min() < low or x.max() > high):
        raise UserError(f"Expected values in {low:g} to {high:g} in {where} ({x.dtype}); declare bounds for others.")
    images = _layout(x, where).astype(np.float32)
    scaled: Floats = np.clip((images - np.float32(low)) / np.float32(high - low), 0, 1)
    return scaled


def _layout(x: Array, where: str) -> Array:
    """NCHW from NHW, NHWC or NCHW."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[3] not in (1, 3):
        return x
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    raise UserError(
        f"Expected (n, features), (n, h, w), (n, 1 or 3, h, w) or (n, h, w, 1 or 3) as {where}, got {x.shape}."
    )


def _labels(y: Array, names: tuple[str, ...], where: str) -> npt.NDArray[np.int64]:
    flat = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.ndim != 1:
        raise UserError(f"Expected one label a record in {where}, got shape {y.shape}.")
    # Whole numbers count the declared classes from 0, unless the classes themselves are numbers.
    if flat.dtype.kind in "uib" and not all(name.lstrip("-").isdigit() for name in names):
        for row in np.flatnonzero((flat < 0) | (flat >= len(names))):
            raise UserError(f"Label {flat[row]} in row {row + 1} of {where} is outside 0 to {len(names) - 1}.")
        return flat.astype(np.int64)
    try:
        return class_codes(flat, names)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
