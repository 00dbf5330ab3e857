"""The user's own data: class folders of images, CSV or Parquet with a label column, npz.

Classes, bounds and image size are declared by the user (for class folders, the folder names are the declaration).
Nothing is fitted on the records, and every mistake is one line that says where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.schema import Schema, is_missing, plain
from prismfl.data.spec import Dataset, Kind, Spec
from prismfl.errors import UserError

Bounds = tuple[float, float]
_TEST_STREAM = 0x7E57


@dataclass(frozen=True, eq=False)
class Records:
    """What a reader found: features ready for training, labels, and the optional id columns."""

    kind: Kind
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    unit: npt.NDArray[Any] | None = None
    natural: npt.NDArray[Any] | None = None
    schema: Schema | None = None
    notices: tuple[str, ...] = ()
    test: tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]] | None = None


def load_path(
    path: str | Path,
    *,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    schema: Schema | str | Path | None = None,
    bounds: Bounds | None = None,
    unit: str | None = None,
    natural: str | None = None,
    train_size: int | None = None,
    test_fraction: float = 0.2,
) -> Dataset:
    """Load the user's own data from a folder of class folders (or train/ and test/ with them), CSV, Parquet or npz.

    Tables need `classes` and either a `schema` or common `bounds`. `unit` and `natural` name id columns. Without a
    test part of its own, a record is held out with probability `test_fraction`; records of one unit stay together.
    `train_size` is the declared public number of training records.
    """
    place = Path(path)
    _check(place, image_size=image_size, bounds=bounds, test_fraction=test_fraction, train_size=train_size)
    declared = schema if isinstance(schema, Schema) or schema is None else Schema.load(schema)
    if place.is_dir():
        from prismfl.data.folders import read_folders

        _only_tables(label=label, unit=unit, natural=natural, schema=schema, bounds=bounds)
        records = read_folders(place, classes=classes, size=image_size, channels=channels)
    elif place.suffix == ".npz":
        from prismfl.data.arrays import read_arrays

        _only_tables(label=label, schema=schema)
        records = read_arrays(place, classes=classes, bounds=bounds, unit=unit, natural=natural)
    elif place.name.endswith((".csv", ".csv.gz", ".tsv", ".parquet", ".pq")):
        from prismfl.data.tables import read_table

        records = read_table(
            place, label=label, classes=classes, schema=declared, bounds=bounds, unit=unit, natural=natural
        )
    else:
        raise UserError(f"Expected a folder, .csv, .tsv, .parquet or .npz as data, got {place}.")
    size = train_size if train_size is not None or records.schema is None else records.schema.train_size
    return _dataset(place, records, test_fraction=test_fraction, train_size=size)


def _check(
    place: Path, *, image_size: int | None, bounds: Bounds | None, test_fraction: float, train_size: int | None
) -> None:
    if not place.exists():
        raise UserError(f"Expected a folder, CSV, Parquet or npz file at {place}, but there is nothing.")
    if image_size is not None and not 1 <= image_size <= 1024:
        raise UserError(f"Expected 1 <= image_size <= 1024, got {image_size}.")
    if bounds is not None and not (np.isfinite(bounds).all() and bounds[0] < bounds[1]):
        raise UserError(f"Expected finite bounds with low < high, got {bounds[0]} and {bounds[1]}.")
    if not 0 <= test_fraction < 1:
        raise UserError(f"Expected 0 <= test_fraction < 1, got {test_fraction}.")
    if train_size is not None and train_size < 1:
        raise UserError(f"Expected train_size >= 1, got {train_size}.")


def _only_tables(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise UserError(f"Expected no {name} for this kind of data, got {value}; it belongs to CSV and Parquet.")


def _dataset(place: Path, records: Records, *, test_fraction: float, train_size: int | None) -> Dataset:
    import torch

    x, y, test = records.x, records.y, records.test
    held = np.zeros(len(y), dtype=bool)
    if test is None:
        held = _held_out(len(y), records.unit, test_fraction)
        test = (x[held], y[held])
        if test_fraction > 0 and (held.all() or not held.any()):
            raise UserError(
                f"Expected enough records in {place} to hold out a test part of {test_fraction:g}, got {len(y)}; "
                f"use test_fraction 0 or a folder with train and test."
            )
    train = ~held
    notices = list(records.notices)
    if train_size is None:
        notices.append(
            f"The number of training records ({train.sum()}) is treated as public; declare train_size to set it."
        )
    spec = Spec(
        name=place.name,
        kind=records.kind,
        shape=tuple(x.shape[1:]),
        classes=records.classes,
        train_size=int(train.sum()) if train_size is None else train_size,
        licence="the user's own",
        source=str(place),
    )
    return Dataset(
        spec,
        torch.from_numpy(x[train]),
        torch.from_numpy(y[train]),
        torch.from_numpy(test[0]),
        torch.from_numpy(test[1]),
        unit_train=None if records.unit is None else _codes(records.unit[train]),
        natural_train=None if records.natural is None else records.natural[train],
        schema=records.schema,
        notices=tuple(notices),
    )


def _held_out(count: int, unit: npt.NDArray[Any] | None, fraction: float) -> npt.NDArray[np.bool_]:
    """Which records are for testing. One record more or less leaves the place of all those before it as it was."""
    if unit is None:
        draws = np.random.default_rng(_TEST_STREAM).random(count)
    else:
        draws = np.array([_place_of(plain(value)) for value in unit], dtype=np.float64)
    return np.asarray(draws < fraction)


def _place_of(unit: str) -> float:
    return int.from_bytes(hashlib.sha256(f"prismfl test part {unit}".encode()).digest()[:7]) / 2**56


def _codes(unit: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.unique(unit.astype(str), return_inverse=True)[1].astype(np.int64)


def id_column(values: Sequence[object] | npt.NDArray[Any], name: str) -> npt.NDArray[np.str_]:
    """An id column as text; an empty cell would silently merge strangers into one unit."""
    for row, value in enumerate(values):
        if is_missing(value):
            raise UserError(f"Empty or NaN cell in id column '{name}', row {row + 1}; every record needs an id.")
    return np.array([plain(value) for value in values], dtype=np.str_)
