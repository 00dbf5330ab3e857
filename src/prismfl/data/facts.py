"""The public facts of own data as its owner declared them, said without opening a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prismfl.data.folders import class_folders
from prismfl.data.found import TABLES, not_data
from prismfl.data.schema import Schema, check_classes, plain
from prismfl.data.schema_file import read_schema
from prismfl.data.spec import Spec
from prismfl.errors import UserError


class UndeclaredError(UserError):
    """A public fact is not declared; only the records could tell it."""


def declared_facts(
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    schema: Schema | str | Path | None = None,
    unit: str | None = None,
    records: int | None = None,
) -> Spec:
    """Kind, shape, classes and unit of own data, from what is declared and from names alone.

    The ending of the path tells the kind, a schema the width of a table, and the names of class folders the classes.
    No file of records is opened or counted. `records` is the declared number of training records.
    """
    place = Path(path)
    declared = schema if isinstance(schema, Schema) or schema is None else read_schema(schema)
    if place.name.endswith(TABLES) and not place.is_dir():
        if declared is None:
            raise UndeclaredError(
                f"What columns {place} has is not declared: give --schema schema.toml (key: schema_file); "
                f"draft one with: prismfl schema {place} -o schema.toml."
            )
        names = tuple(plain(name) for name in classes) if classes else declared.classes
        size = records or declared.train_size or 0
        found = Spec(place.name, "table", (declared.width,), names, size, "", "", unit=unit or declared.unit)
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
    check_classes(found.classes)
    return found


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
