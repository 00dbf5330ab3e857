"""Data sets that are read from files in the data folder, each file checked against its SHA-256 sum."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data import declared
from prismfl.data.manifest import FILES, read_checked
from prismfl.data.schema import Schema
from prismfl.data.spec import Dataset, Spec
from prismfl.data.split import Part, assemble, divide
from prismfl.errors import UserError

Pixels = npt.NDArray[np.uint8]
Rows = list[list[str]]


def read_stored(spec: Spec, folder: Path | None, subset: int | None) -> Dataset:
    """The stored data set that a spec names, in a training and a test part."""
    if spec.name in _IMAGES:
        return assemble(spec, _IMAGES[spec.name](spec, folder), subset=subset)
    read, schema = _TABLES[spec.name]
    parts = [(schema.encode(table).numpy(), schema.encode_labels(labels).numpy()) for table, labels in read(folder)]
    both = (parts[0], parts[1]) if len(parts) == 2 else divide(spec, *parts[0])
    return assemble(spec, both, subset=subset, schema=schema)


def read_pixels(spec: Spec, folder: Path | None) -> npt.NDArray[Any]:
    """The training images of a stored set as bytes, NCHW."""
    return _IMAGES[spec.name](spec, folder)[0][0]


def read_idx(content: bytes) -> Pixels:
    """An unsigned-byte IDX array: two zero bytes, the type, the number of axes, their lengths, the values."""
    raw = gzip.decompress(content)
    axes = raw[3]
    lengths = np.frombuffer(raw, ">i4", axes, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(lengths)


def read_sheet(content: bytes, *, columns: int, side: int) -> Pixels:
    """The square tiles of a picture sheet, row by row, as NCHW bytes."""
    from PIL import Image

    try:
        sheet = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    except OSError as error:
        raise UserError(f"This Pillow cannot read the picture sheet ({error}): pip install -U pillow.") from None
    tiles = sheet.reshape(-1, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(-1, 3, side, side)


def read_npz(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an NPZ archive, by name."""
    # Pickled arrays are refused: a file may hold numbers and text, never code.
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _idx_set(spec: Spec, folder: Path | None) -> tuple[Part, Part]:
    train_x, train_y, test_x, test_y = (read_idx(read_checked(folder, spec.name, path)) for path in FILES[spec.name])
    return (train_x[:, None], train_y.astype(np.int64)), (test_x[:, None], test_y.astype(np.int64))


def _cifar10(spec: Spec, folder: Path | None) -> tuple[Part, Part]:
    *sheets, labels_path = FILES[spec.name]
    *train, test = (read_sheet(read_checked(folder, spec.name, path), columns=100, side=32) for path in sheets)
    labels = read_npz(read_checked(folder, spec.name, labels_path))
    return (np.concatenate(train), labels["train"]), (test, labels["test"])


def _celeba_hair(spec: Spec, folder: Path | None) -> tuple[Part, Part]:
    sheet, labels = (read_checked(folder, spec.name, path) for path in FILES[spec.name])
    hair = read_npz(labels)["hair"]
    chosen = hair < len(spec.classes)  # the fourth colour, gray, is not part of the task
    return divide(spec, read_sheet(sheet, columns=50, side=64)[chosen], hair[chosen])


def _pneumonia(spec: Spec, folder: Path | None) -> tuple[Part, Part]:
    arrays = read_npz(read_checked(folder, spec.name, *FILES[spec.name]))
    train, test = (
        (arrays[f"{part}_images"][:, None], arrays[f"{part}_labels"][:, 0].astype(np.int64))
        for part in ("train", "test")
    )
    return train, test


Table = tuple[dict[str, list[str]], list[str]]


def _columns(names: Iterable[str], rows: Rows) -> dict[str, list[str]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _text(content: bytes) -> str:
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8")


def _adult(folder: Path | None) -> list[Table]:
    parts = []
    for path in FILES["adult"]:
        lines = _text(read_checked(folder, "adult", path)).splitlines()
        # The test file opens with a comment and ends its labels with a full stop.
        rows = [line.rstrip(".").split(", ") for line in lines if line and not line.startswith("|")]
        parts.append((_columns(declared.ADULT.names, rows), [row[-1] for row in rows]))
    return parts


def _titanic(folder: Path | None) -> list[Table]:
    rows = list(csv.DictReader(io.StringIO(_text(read_checked(folder, "titanic", *FILES["titanic"])))))
    labels = [declared.TITANIC.classes[int(row["Survived"])] for row in rows]
    return [({name: [row[name] for row in rows] for name in declared.TITANIC.names}, labels)]


def _mushroom(folder: Path | None) -> list[Table]:
    rows = [line.split(",") for line in _text(read_checked(folder, "mushroom", *FILES["mushroom"])).splitlines()]
    labels = ["edible" if row[0] == "e" else "poisonous" for row in rows]
    return [(_columns(declared.MUSHROOM.names, [row[1:] for row in rows]), labels)]


def _wine_quality(folder: Path | None) -> list[Table]:
    rows: Rows = []
    labels: list[str] = []
    for path, colour in zip(FILES["wine-quality"], declared.WINE_QUALITY.classes, strict=True):
        lines = _text(read_checked(folder, "wine-quality", path)).splitlines()[1:]
        # Exact duplicates would put the same wine into both the training and the test part.
        distinct = dict.fromkeys(tuple(float(cell) for cell in line.split(";")) for line in lines)
        rows += [[str(value) for value in row] for row in distinct]
        labels += [colour] * len(distinct)
    return [(_columns(declared.WINE_QUALITY.names, rows), labels)]


_IMAGES: dict[str, Callable[[Spec, Path | None], tuple[Part, Part]]] = {
    "mnist": _idx_set,
    "fashion-mnist": _idx_set,
    "cifar10": _cifar10,
    "celeba-hair": _celeba_hair,
    "pneumonia": _pneumonia,
}
_TABLES: dict[str, tuple[Callable[[Path | None], list[Table]], Schema]] = {
    "adult": (_adult, declared.ADULT),
    "titanic": (_titanic, declared.TITANIC),
    "mushroom": (_mushroom, declared.MUSHROOM),
    "wine-quality": (_wine_quality, declared.WINE_QUALITY),
}
