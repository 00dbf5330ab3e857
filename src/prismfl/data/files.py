"""The user's own data: class folders of images, CSV or Parquet with a label column, npz.

Classes, bounds and image size are declared by the user (for class folders, the folder names are the declaration).
Nothing is fitted on the records, and every mistake is one line that says where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.data.faults import Faults
from prismfl.data.found import TABLES, Bounds, Found, not_data
from prismfl.data.ids import codes_of
from prismfl.data.parts_file import is_parted, read_patient_file
from prismfl.data.schema import Schema
from prismfl.data.schema_file import read_schema
from prismfl.data.spec import Dataset, Spec
from prismfl.data.split import place_of, take_out
from prismfl.errors import UserError

OPTIONS = {"label": "--label", "unit": "--unit", "natural": "--split natural", "schema": "--schema"}


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
    test: str | None = None,
    test_fraction: float = 0.0,
    lenient: bool = False,
) -> Dataset:
    """Load the user's own data from a folder of class folders (or train/ and test/ with them), CSV, Parquet or npz.

    Tables need `classes` and either a `schema` or common `bounds`. `unit` and `natural` name id columns. `test` names
    a column of a table that marks the test part with 1, true or test. Without a test part of its own, the content of a
    record (or the id of its unit) alone decides whether it is among the `test_fraction` held out; the default holds
    out nothing. `train_size` is the declared public number of training records.

    `lenient` is how a site reads: a record that cannot be read in the declared domain is left out, by itself, and no
    record at all is legal. What the readers would otherwise take from the files must then be declared.
    """
    place = Path(path)
    faults = Faults(lenient=lenient)
    if lenient and natural is not None:
        raise UserError("Expected no natural ids (key: split) where records may be left out.")
    _check(place, image_size=image_size, bounds=bounds, test_fraction=test_fraction, train_size=train_size)
    if not isinstance(schema, Schema) and is_parted(schema):
        assert schema is not None
        from prismfl.data.patient_files import read_patients

        told = read_patient_file(schema)
        told = told if unit is None else replace(told, unit=unit)
        found = read_patients(place, told, faults)
        size = train_size or told.train_size
        made = as_dataset(place, found, test_fraction=test_fraction, train_size=size, unit=told.unit)
        return replace(made, spec=replace(made.spec, parts=told.parts))
    declared = schema if isinstance(schema, Schema) or schema is None else read_schema(schema)
    if place.is_dir():
        from prismfl.data.folders import read_folders

        _only_tables(label=label, unit=unit, natural=natural, schema=schema, bounds=bounds, test=test)
        records = read_folders(place, classes=classes, size=image_size, channels=channels, faults=faults)
    elif place.suffix == ".npz":
        from prismfl.data.arrays import read_arrays

        _only_tables(label=label, schema=schema, test=test)
        records = read_arrays(place, classes=classes, bounds=bounds, unit=unit, natural=natural, faults=faults)
        _check_shape(place, records, image_size=image_size, channels=channels)
    elif place.name.endswith(TABLES):
        from prismfl.data.tables import Roles, read_table

        unit = unit or (declared.unit if declared else None)
        roles = Roles(label=label, unit=unit, natural=natural, test=test)
        records = read_table(place, roles=roles, classes=classes, schema=declared, bounds=bounds, faults=faults)
    else:
        raise not_data(place)
    size = train_size if train_size is not None or records.schema is None else records.schema.train_size
    check_units(records, unit, natural)
    return as_dataset(place, records, test_fraction=test_fraction, train_size=size, unit=unit)


def _check(
    place: Path, *, image_size: int | None, bounds: Bounds | None, test_fraction: float, train_size: int | None
) -> None:
    if not place.exists():
        raise UserError(f"Expected a folder, CSV, Parquet or npz file at {place}, but there is nothing.")
    if image_size is not None and not 1 <= image_size <= 1024:
        raise UserError(f"Expected 1 <= image_size <= 1024 (--image-size), got {image_size}.")
    if bounds is not None and not (np.isfinite(bounds).all() and bounds[0] < bounds[1]):
        raise UserError(f"Expected finite bounds with low < high (key: bounds), got {bounds[0]} and {bounds[1]}.")
    if not 0 <= test_fraction < 1:
        raise UserError(f"Expected 0 <= test_fraction < 1 (--test), got {test_fraction}.")
    if train_size is not None and train_size < 1:
        raise UserError(f"Expected train_size >= 1 (--records), got {train_size}.")


def _only_tables(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            option = f" ({OPTIONS[name]})" if name in OPTIONS else ""
            raise UserError(f"Expected no {name}{option} for this kind of data, got {value}; it belongs to tables.")


def _check_shape(place: Path, records: Found, *, image_size: int | None, channels: int | None) -> None:
    """npz images are taken as they are: what was declared about them must be so."""
    found = records.x.shape[1:]
    declared = (channels or found[0], *((image_size or side) for side in found[1:]))
    if records.kind == "image" and found != declared:
        raise UserError(
            f"Expected images of shape {declared} in {place} as declared, got {found}; mend --image-size or --channels."
        )


def check_units(records: Found, unit: str | None, natural: str | None) -> None:
    """A unit that lies at two sites would be paid for at each, and the stated cost would be that of one."""
    if records.unit is None or records.natural is None:
        return
    homes: dict[str, str] = {}
    for one, home in zip(records.unit.tolist(), records.natural.tolist()):
        if homes.setdefault(one, home) != home:
            raise UserError(
                f"Expected all records of one '{unit}' under one '{natural}', got some under several; a unit must lie "
                "at one site. Clean the ids, or use another --split."
            )


def as_dataset(
    place: Path, records: Found, *, test_fraction: float, train_size: int | None, unit: str | None
) -> Dataset:
    """What a reader found, with a test part: its own, or the share that is held out by content."""
    import torch

    held = np.zeros(len(records.y), dtype=bool)
    test = records.test
    if test is None:
        held = _held_out(records, test_fraction)
    x, out = take_out(records.x, held)
    test = test or (out, records.y[held])
    train = ~held
    notices = [*records.notices, *_few(records.y[train], records.classes)]
    if train_size is None:
        notices.append(
            f"The number of training records ({train.sum()}) is treated as public; --records (key: records) sets it."
        )
    spec = Spec(
        name=place.name,
        kind=records.kind,
        shape=tuple(records.x.shape[1:]),
        classes=records.classes,
        train_size=int(train.sum()) if train_size is None else train_size,
        licence="the user's own",
        source=str(place),
        unit=unit,
    )
    return Dataset(
        spec,
        torch.from_numpy(x),
        torch.from_numpy(records.y[train]),
        torch.from_numpy(test[0]),
        torch.from_numpy(test[1]),
        unit_train=None if records.unit is None else codes_of(records.unit[train].tolist()),
        natural_train=None if records.natural is None else records.natural[train],
        schema=records.schema,
        notices=tuple(notices),
        prints_train=[records.prints[i] for i in np.flatnonzero(train)],
        more_prints=tuple(other[i] for other in records.more for i in np.flatnonzero(train)),
        left_out=len(records.faults.rows),
        faults=tuple(records.faults.shown),
    )


def _few(y: npt.NDArray[np.int64], classes: Sequence[str]) -> list[str]:
    """A line for each class that can hardly be learnt."""
    sizes = np.bincount(y, minlength=len(classes)).tolist()
    return [
        f"Class '{name}' has {'one record' if size else 'no record'} to learn from; add some, or leave it out of "
        "--classes (key: classes)."
        for name, size in zip(classes, sizes)
        if size < 2
    ]


def _held_out(records: Found, fraction: float) -> npt.NDArray[np.bool_]:
    """Which records are for testing: each by its unit or its own content, whoever lies beside it."""
    if fraction == 0:
        return np.zeros(len(records.y), dtype=bool)
    names = records.prints if records.unit is None else records.unit.tolist()
    return np.array([place_of("prismfl test part", name) < fraction for name in names], dtype=bool)
