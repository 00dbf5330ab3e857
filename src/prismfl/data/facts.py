"""The public facts of own data as its owner declared them, said without opening a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prismfl.data.folders import class_folders
from prismfl.data.found import TABLES, not_data
from prismfl.data.parts_file import PatientFile, is_parted, read_patient_file
from prismfl.data.schema import Schema, check_classes, plain
from prismfl.data.schema_file import read_schema
from prismfl.data.spec import Spec
from prismfl.errors import UserError


class UndeclaredError(UserError):
    """A public fact is not declared; only the records could tell it."""


def declared_facts(
    path: str | Path,
    *,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    features: int | None = None,
    schema: Schema | str | Path | None = None,
    unit: str | None = None,
    records: int | None = None,
) -> Spec:
    """Kind, shape, classes and unit of own data, from what is declared and from names alone.

    The ending of the path tells the kind, a schema the width of a table, and the names of class folders the classes.
    No file of records is opened or counted. `records` is the declared number of training records.
    """
    place = Path(path)
    if not isinstance(schema, Schema) and is_parted(schema):
        assert schema is not None
        return parted_facts(place, read_patient_file(schema), unit=unit, records=records)
    declared = schema if isinstance(schema, Schema) or schema is None else read_schema(schema)
    if place.name.endswith(TABLES) and not place.is_dir():
        if declared is None:
            raise UndeclaredError(
                f"What columns {place} has is not declared: give --schema schema.toml (key: schema_file); "
                f"draft one with: prismfl schema {place} -o schema.toml."
            )
        declared = declared.predicting(label or declared.label, tuple(plain(name) for name in classes or ()))
        size = records or declared.train_size or 0
        found = Spec(place.name, "table", (declared.width,), declared.classes, size, "", "", unit=unit or declared.unit)
    elif place.suffix == ".npz" and features is not None:
        if not classes:
            raise UndeclaredError(f"What classes {place} has is not declared: give --classes a,b (with your own).")
        names = tuple(plain(name) for name in classes)
        found = Spec(place.name, "table", (features,), names, records or 0, "", "", unit=unit)
    elif place.is_dir() or place.suffix == ".npz":
        names = tuple(plain(name) for name in classes or ())
        if not names and place.is_dir():
            names = class_folders(place)
        _check_images(place, names, image_size, channels)
        assert image_size is not None
        assert channels is not None
        found = Spec(place.name, "image", (channels, image_size, image_size), names, records or 0, "", "", unit=unit)
    else:
        raise not_data(place)
    if declared is None:  # a schema has seen to its own
        check_classes(found.classes)
    return found


def parted_facts(place: Path, declared: PatientFile, *, unit: str | None = None, records: int | None = None) -> Spec:
    """The facts of records of several parts, as their file declares them."""
    parts, size = declared.parts, records or declared.train_size or 0
    return Spec(
        place.name,
        parts.kind,
        (parts.width,),
        declared.classes,
        size,
        "the user's own",
        str(place),
        unit=unit or declared.unit,
        parts=parts,
    )


def _check_images(place: Path, names: tuple[str, ...], size: int | None, channels: int | None) -> None:
    missing = [
        option
        for option, value in (("--classes a,b", names), ("--image-size 28", size), ("--channels 1", channels))
        if not value
    ]
    if missing:
        raise UndeclaredError(
            f"What the images of {place} are like is not declared, and no record is opened: give {' '.join(missing)} "
            "(with your own values)."
        )
