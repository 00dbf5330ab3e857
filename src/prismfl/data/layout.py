"""What names, headers and counts tell about own data, before a record is read: for whoever declares them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prismfl.data.archive import read_forms
from prismfl.data.columns import check_columns, column_names
from prismfl.data.folders import class_counts, class_folders, has_test_part
from prismfl.data.found import TABLES, not_data
from prismfl.data.schema import listed, value_of
from prismfl.errors import UserError

Form = Literal["folders", "npz", "table"]


@dataclass(frozen=True)
class DataLayout:
    """The form of own data and the names in it: class folders, arrays or columns.

    `about` is the number of training records, rounded; None where only the records could tell. `shape` is that of an
    npz file's images.
    """

    path: Path
    form: Form
    names: tuple[str, ...]
    about: int | None = None
    own_test: bool = False
    shape: tuple[int, int, int] | None = None
    ids: tuple[str, ...] = ()

    def words(self) -> str:
        """The same for people."""
        size = "" if self.about is None else f", about {self.about:,} records"
        what = {"folders": "class folders", "npz": "arrays", "table": "columns"}[self.form]
        test = "; a test part of its own" if self.own_test else ""
        return f"{self.path}: {len(self.names)} {what} ({listed(self.names)}){size}{test}"


def layout_of(path: Path) -> DataLayout:
    """The layout of a folder, npz or table file. Of files only names, sizes and headers are looked at."""
    if not path.exists():
        raise UserError(f"Expected a folder, CSV, Parquet or npz file as DATA, but there is nothing at {path}.")
    if path.is_dir():
        return _folders(path)
    if path.suffix == ".npz":
        return _arrays(path)
    if path.name.endswith(TABLES):
        return _table(path)
    raise not_data(path)


def rounded(count: float) -> int:
    """A number with one figure, rounded down: what may be told of a count. At least 1."""
    whole = max(1, int(count))
    unit = int(10 ** (len(str(whole)) - 1))
    return whole // unit * unit


def _folders(root: Path) -> DataLayout:
    names, counts = class_folders(root), class_counts(root)
    if len(names) < 2:
        inside = [name for name in names if len(class_folders(root / name)) > 1]
        hint = f"did you mean {root / inside[0]}?" if inside else "make one folder for each class."
        raise UserError(
            f"Expected a folder for each class (at least two) in {root}, got {listed(names) or 'none'}; {hint}"
        )
    return DataLayout(root, "folders", names, rounded(sum(counts.values())), own_test=has_test_part(root))


def _arrays(path: Path) -> DataLayout:
    forms = read_forms(path)
    name = "x" if "x" in forms else "x_train"
    if name not in forms:
        raise UserError(f"Expected array 'x' (or 'x_train' and 'x_test') in {path}, got {listed(forms) or 'none'}.")
    shape = forms[name][0]
    if len(shape) == 2:
        raise UserError(
            f"'{name}' of {path} is a table of {shape[1]} columns without names; save it as CSV and give that as DATA."
        )
    count = shape[0] if shape else 0
    ids = [key for key, (form, _) in forms.items() if form == (count,) and key not in ("y", "y_train")]
    return DataLayout(
        path,
        "npz",
        tuple(forms),
        rounded(count) if count else None,
        own_test=name == "x_train" and "x_test" in forms,
        shape=_image_shape(shape, f"'{name}' of {path}"),
        ids=tuple(ids),
    )


def _image_shape(shape: tuple[int, ...], where: str) -> tuple[int, int, int]:
    """(channels, height, width) from the shape of an array of images."""
    if len(shape) == 3:
        return 1, shape[1], shape[2]
    if len(shape) == 4 and shape[1] in (1, 3):
        return shape[1], shape[2], shape[3]
    if len(shape) == 4 and shape[3] in (1, 3):
        return shape[3], shape[1], shape[2]
    raise UserError(f"Expected (n, h, w), (n, 1 or 3, h, w) or (n, h, w, 1 or 3) as {where}, got {shape}.")


def _table(path: Path) -> DataLayout:
    names = column_names(path)
    check_columns(names, str(path))
    numbers = [value_of(name) for name in names]
    counted = numbers in ([*range(len(names))], [*range(1, len(names) + 1)])
    if None not in numbers and not counted:
        raise UserError(
            f"Expected the names of the columns in the first line of {path}, got numbers ({listed(names, 5)}); add a "
            "header line."
        )
    return DataLayout(path, "table", tuple(names))
