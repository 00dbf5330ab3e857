"""npz archives: `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test`. Pickled content is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.archive import read_members
from prismfl.data.faults import Faults
from prismfl.data.found import Bounds, Found
from prismfl.data.ids import id_column
from prismfl.data.prints import matrix_prints, picture_print, vector_prints
from prismfl.data.schema import check_classes, class_codes, listed, plain, value_of
from prismfl.data.spec import Kind
from prismfl.errors import CellError, UserError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


def read_arrays(
    path: Path,
    *,
    classes: Sequence[str] | None,
    bounds: Bounds | None,
    unit: str | None,
    natural: str | None,
    faults: Faults,
) -> Found:
    """The records of a file of named arrays: x and y, or x_train, y_train, x_test and y_test."""
    arrays = read_members(path)
    return found_arrays(arrays, path, classes=classes, bounds=bounds, unit=unit, natural=natural, faults=faults)


def found_arrays(
    arrays: Mapping[str, Array],
    path: Path | str,
    *,
    classes: Sequence[str] | None,
    bounds: Bounds | None,
    unit: str | None = None,
    natural: str | None = None,
    faults: Faults,
) -> Found:
    """The same for arrays that are in hand; `path` says whose they are."""
    parts = [("x", "y")] if "x" in arrays else [("x_train", "y_train"), ("x_test", "y_test")]
    wanted = [key for part in parts for key in part] + [key for key in (unit, natural) if key is not None]
    for key in wanted:
        if key not in arrays:
            raise UserError(f"Expected array '{key}' in {path}, got {listed(arrays) or 'none'}.")
    names = _declared(path, classes, bounds, lenient=faults.lenient)
    for x_name, y_name in parts:
        if len(arrays[x_name]) != len(arrays[y_name]) or not (len(arrays[x_name]) or faults.lenient):
            got = f"{len(arrays[y_name])} and {len(arrays[x_name])}"
            raise UserError(f"Expected as many {y_name} as {x_name} in {path}, got {got}.")
    noted = [faults, Faults(lenient=faults.lenient)]  # of the training and the test part
    read = [
        (features(arrays[x], bounds, f"{x} of {path}", f), labels(arrays[y], names, f"{y} of {path}", f))
        for (x, y), f in zip(parts, noted)
    ]
    ids = {key: id_column(arrays[key], key, faults) for key in (unit, natural) if key is not None}
    for key, column in ids.items():
        if len(column) != len(read[0][1]):
            raise UserError(f"Expected {len(read[0][1])} values in '{key}' of {path}, got {len(column)}.")
    kind: Kind = "image" if read[0][0].ndim == 4 else "table"
    kept, x = faults.kept(len(read[0][1])), read[0][0]
    held = noted[1].kept(len(read[1][1])) if len(read) == 2 else None
    x, raw = (_rows(part, kept) for part in (x, _numbers(arrays[parts[0][0]], faults)))
    return Found(
        kind,
        x,
        read[0][1][kept],
        names,
        _prints(raw, x),
        unit=ids[unit][kept] if unit else None,
        natural=ids[natural][kept] if natural else None,
        test=None if held is None else (_rows(read[1][0], held), read[1][1][held]),
        faults=faults,
        more=(matrix_prints(raw),) if kind == "table" else (),
    )


def _rows(array: Array, kept: npt.NDArray[np.int64]) -> Array:
    """Some rows in their order; no copy where they are all."""
    return array if len(kept) == len(array) else array[kept]


def _declared(
    path: Path | str, classes: Sequence[str] | None, bounds: Bounds | None, *, lenient: bool
) -> tuple[str, ...]:
    """The names of the classes. On a site nothing may hang on the type of an array, which one value can change."""
    if not classes:
        raise UserError(
            f"Expected declared classes for the labels of {path}: give --classes a,b (key: classes); never taken "
            "from the data."
        )
    names = tuple(plain(name) for name in classes)
    check_classes(names)
    if lenient and bounds is None:
        raise UserError(
            f"Expected declared bounds for {path}: give --bounds LOW,HIGH (key: bounds); never taken from the data."
        )
    if lenient and len({value_of(name) is None for name in names}) == 2:
        raise UserError(f"Expected classes that are all numbers or none of them for {path}, got {listed(names)}.")
    return names


def measured_arrays(path: Path) -> dict[str, Any]:
    """What the form of an archive's first array tells; for whoever declares it."""
    arrays = read_members(path)
    x = arrays.get("x", arrays.get("x_train", np.empty(0)))
    if x.ndim == 2:
        return {"features": x.shape[1]}
    shape = _layout(x, f"x of {path}").shape[1:]
    tops = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}
    side = {"image_size": shape[1]} if shape[1] == shape[2] else {}
    return {**side, "channels": shape[0], "bounds": (0.0, tops.get(x.dtype, 1.0))}


def _prints(raw: Array, scaled: Array) -> list[bytes]:
    """Of the numbers as stored; pictures of other numbers have no range but the declared one."""
    if raw.ndim == 2:
        return vector_prints(raw)
    stored = raw.dtype in (np.uint8, np.uint16) and scaled.dtype != np.uint8
    pictures = _layout(raw, "x") if stored else scaled
    return [picture_print(picture) for picture in pictures]


def _numbers(x: Array, faults: Faults) -> Array:
    """The array as numbers. One text or complex value among them makes all of them text or complex: on a site they
    are read back one by one."""
    if not faults.lenient or x.dtype.kind not in "USc":
        return x
    flat = x.reshape(len(x), -1)
    found = np.full(flat.shape, np.nan)
    for row, values in enumerate(flat):
        try:
            found[row] = values.real if x.dtype.kind == "c" else values.astype(np.float64)
            if x.dtype.kind == "c" and values.imag.any():
                raise ValueError
        except ValueError:
            found[row] = np.nan
    return found.reshape(x.shape)


def features(x: Array, bounds: Bounds | None, where: str, faults: Faults) -> Array:
    """Ready for training: float32, or pictures of bytes as they are where these stand for their whole range."""
    x = _numbers(x, faults)
    if faults.lenient and not x.size:
        return np.zeros((len(x), *(x.shape[1:] or (0,))), dtype=np.float32)
    if x.dtype.kind not in "uifb":
        raise UserError(f"Expected numbers in {where}, got {x.dtype}.")
    if 0 in x.shape[1:]:
        raise UserError(f"Expected at least one number a record in {where}, got shape {x.shape}.")
    bad = np.argwhere(~np.isfinite(x)) if x.dtype.kind == "f" else np.empty((0, x.ndim), dtype=np.int64)
    for place in bad[np.unique(bad[:, 0], return_index=True)[1]].tolist():
        column = f", column {place[1] + 1}" if x.ndim == 2 else ""
        words = f"NaN or infinite value in {where}, row {place[0] + 1}{column}."
        error = CellError(words, without_values=words)
        faults.note(place[0], "a value is not a finite number", error, place=column.lstrip(", "))
    if x.ndim == 2:
        if bounds is None:
            raise UserError(
                f"Expected declared bounds for {where}: a site takes them (key: bounds of site.toml); else save "
                "the table as CSV with a --schema. They are never taken from the data."
            )
        low, high = bounds
        with np.errstate(invalid="ignore"):  # what is not finite was noted
            return (2 * (np.clip(x.astype(np.float64), low, high) - low) / (high - low) - 1).astype(np.float32)
    low, high = bounds or (0.0, 255.0 if x.dtype == np.uint8 else 1.0)
    if bounds is None and x.size and (x.min() < low or x.max() > high):
        raise UserError(
            f"Expected values in {low:g} to {high:g} in {where} ({x.dtype}); "
            "save them so; a site takes others (key: bounds)."
        )
    # Where bad records are left out singly, one of them may have made the whole file floats: then all files are.
    if x.dtype == np.uint8 and (low, high) == (0.0, 255.0) and not faults.lenient:
        return _layout(x, where)
    with np.errstate(invalid="ignore", over="ignore"):
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


def labels(y: Array, names: tuple[str, ...], where: str, faults: Faults) -> npt.NDArray[np.int64]:
    """Class numbers in the declared order; a label that is no declared class is a fault."""
    flat = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.ndim != 1:
        raise UserError(f"Expected one label a record in {where}, got shape {y.shape}.")
    # Whole numbers count the declared classes from 0, unless the classes themselves are numbers.
    counted = not all(name.lstrip("-").isdigit() for name in names)
    if flat.dtype.kind in "uib" and counted:
        outside = (flat < 0) | (flat >= len(names))
        for row in np.flatnonzero(outside).tolist():
            rest = f"in row {row + 1} of {where} is outside 0 to {len(names) - 1}; mend it or --classes."
            error = CellError(f"Label {flat[row]} {rest}", without_values=f"The label {rest}")
            faults.note(row, "its label is not a declared class", error)
        return np.where(outside, 0, flat).astype(np.int64)
    counts = counted and (faults.lenient or flat.dtype.kind == "f")  # 1.0 counts as 1 does
    given = [_named(value, names) for value in flat.tolist()] if counts else flat
    try:
        return class_codes(given, names, faults)
    except UserError as error:
        raise error.within(where) from None


def _named(value: object, names: tuple[str, ...]) -> object:
    """A label that counts the classes, in an array that one text or one gap has made text or floats, as a name."""
    number = value_of(plain(value))
    return names[int(number)] if number is not None and number in range(len(names)) else value
