"""Records that a finished model is to classify, some at a time: a folder of images, npz, CSV, Parquet or a named set.

Nothing is learnt here, so nothing must be declared: shape, classes and columns are those of the model's run. A record
that cannot be read is left out and counted; labels are looked at where there are some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.archive import read_members
from prismfl.data.arrays import features, labels
from prismfl.data.columns import read_columns
from prismfl.data.datasets import DATASETS, find, load
from prismfl.data.faults import Faults
from prismfl.data.folders import SUFFIXES, folder_names, read_picture
from prismfl.data.found import TABLES
from prismfl.data.schema import Schema, class_codes, listed
from prismfl.errors import CellError, UserError

UNKNOWN = -1
ROWS, NUMBERS = 500, 2**22  # records at a time, and numbers in them

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)  # no record in a traceback
class Batch:
    """Some records: their names, their features in the run's shape, and class numbers (UNKNOWN where there is none)."""

    names: list[str]
    x: Floats
    y: Labels


@dataclass(frozen=True)
class Form:
    """What the model's run declared: the shape of a record, the classes, and the columns of a table."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    schema: Schema | None = None

    @property
    def rows(self) -> int:
        """How many records are read at a time."""
        return max(1, min(ROWS, NUMBERS // int(np.prod(self.shape))))


@dataclass(frozen=True, eq=False, repr=False)
class Unseen:
    """`total` records at most; `batches()` reads them once, and counts in `left_out` why some are not in it."""

    total: int
    labelled: bool
    batches: Callable[[], Iterator[Batch]]
    left_out: Counter[str] = field(default_factory=Counter)


def open_unseen(data: str, form: Form, *, data_dir: str | None = None) -> Unseen:
    """The records at a path, or the test part of a named data set."""
    if data in DATASETS:
        return _named_set(data, form, data_dir)
    path = Path(data)
    if not path.exists():
        find(data)  # the nearest name
    if path.is_dir():
        return _folder(path, form)
    if path.suffix == ".npz":
        return _archive(path, form)
    if path.name.lower().endswith(TABLES):
        return _table(path, form)
    raise UserError(f"Expected a folder of images, .npz, .csv, .tsv, .parquet or a data set's name, got '{data}'.")


def _folder(root: Path, form: Form) -> Unseen:
    _want_images(root, form)
    found = sorted(p for p in root.rglob("*") if p.is_file() and not _hidden(p.relative_to(root)))
    files = [p for p in found if p.suffix.lower() in SUFFIXES]
    if not files:
        raise UserError(f"Expected PNG, JPEG, WebP or BMP images in {root}, got none.")
    codes = {name: i for i, name in (*enumerate(folder_names(form.classes)), *enumerate(form.classes))}
    known = [next((codes[p] for p in f.relative_to(root).parts[-2::-1] if p in codes), UNKNOWN) for f in files]
    left_out: Counter[str] = Counter()
    if len(found) > len(files):
        left_out["the file is not an image"] = len(found) - len(files)
    depth, height, width = form.shape

    def batches() -> Iterator[Batch]:
        for start in range(0, len(files), form.rows):
            names, pictures, numbers = [], [], []
            for path, label in zip(files[start : start + form.rows], known[start : start + form.rows]):
                try:
                    pictures.append(read_picture(path, (width, height), depth))
                except CellError:
                    left_out["the picture cannot be read"] += 1
                    continue
                names.append(_text(path.relative_to(root).as_posix()))
                numbers.append(label)
            if names:
                yield Batch(names, np.stack(pictures), np.array(numbers, dtype=np.int64))

    return Unseen(len(files), any(label != UNKNOWN for label in known), batches, left_out)


def _archive(path: Path, form: Form) -> Unseen:
    arrays = read_members(path)
    kind = next((k for k in ("x", "x_test") if k in arrays), None)
    if kind is None:
        raise UserError(f"Expected array 'x' (or 'x_test') in {path}, got {listed(arrays) or 'none'}.")
    faults, where = Faults(lenient=True), f"{kind} of {path}"
    x = _rows(arrays[kind], where, faults) if arrays[kind].ndim == 2 else features(arrays[kind], None, where, faults)
    _check_shape(x, form, where)
    y = arrays.get(kind.replace("x", "y", 1))
    if y is not None and len(y) != len(x):
        raise UserError(f"Expected as many labels as records in {path}, got {len(y)} and {len(x)}.")
    if y is not None and y.ndim == 2 and y.shape[1] == len(form.classes) > 1 and y.dtype.kind in "uif":
        y = y.argmax(1)  # soft labels
    codes = None if y is None else _known(lambda f: labels(y, form.classes, f"labels of {path}", f))
    return _whole(x, codes, form, faults)


def _rows(x: npt.NDArray[Any], where: str, faults: Faults) -> Floats:
    """A table's rows, which are encoded already."""
    if x.dtype.kind not in "biuf":
        raise UserError(f"Expected numbers in {where}, got {x.dtype}.")
    for row in np.flatnonzero(~np.isfinite(x.astype(np.float64)).all(1)).tolist():
        words = f"NaN or infinite value in {where}, row {row + 1}."
        faults.note(row, "a value is not a finite number", CellError(words, without_values=words))
    return x.astype(np.float32)


def _table(path: Path, form: Form) -> Unseen:
    schema = form.schema
    if schema is None:
        raise UserError(
            f"The run's records have no named columns, so {path} cannot be read for it; give images or npz."
        )
    faults = Faults(lenient=True)
    table = read_columns(path, faults)
    try:
        x = schema.encode(table, faults).numpy()
    except UserError as error:
        raise error.within(path) from None
    given = table.get(schema.label)
    codes = None if given is None else _known(lambda f: class_codes(given, form.classes, f))
    return _whole(x, codes, form, faults)


def _named_set(name: str, form: Form, data_dir: str | None) -> Unseen:
    dataset = load(name, data_dir=data_dir)
    x, spec = dataset.x_test.numpy(), dataset.spec
    _check_shape(x, form, f"the test part of '{name}'")
    numbers = {c: i for i, c in enumerate(form.classes)}
    codes = np.array([numbers.get(c, UNKNOWN) for c in spec.classes], dtype=np.int64)[dataset.y_test.numpy()]
    return _whole(x, codes if bool((codes != UNKNOWN).any()) else None, form, Faults(lenient=True))


def _known(read: Callable[[Faults], Labels]) -> Labels:
    """Class numbers; UNKNOWN for a label that is no declared class."""
    unknown = Faults(lenient=True)
    codes = read(unknown)
    codes[sorted(unknown.rows)] = UNKNOWN
    return codes


def _whole(x: Floats, y: Labels | None, form: Form, faults: Faults) -> Unseen:
    """Records that are in memory; each has its row's number, counted from 1, as its name."""
    kept, numbers = faults.kept(len(x)), np.full(len(x), UNKNOWN) if y is None else y
    told = Counter(bad.what for bad in faults.shown)
    if len(faults.rows) > len(faults.shown):
        told["it cannot be read"] += len(faults.rows) - len(faults.shown)

    def batches() -> Iterator[Batch]:
        for start in range(0, len(kept), form.rows):
            rows = kept[start : start + form.rows]
            yield Batch([str(row + 1) for row in rows], x[rows], numbers[rows])

    return Unseen(len(x), y is not None and bool((y != UNKNOWN).any()), batches, told)


def _want_images(root: Path, form: Form) -> None:
    if len(form.shape) != 3:
        raise UserError(f"The run's records are a table's rows, but {root} is a folder; give CSV, Parquet or npz.")


def _check_shape(x: Floats, form: Form, where: str) -> None:
    if x.shape[1:] != form.shape:
        raise UserError(f"Expected records of shape {form.shape} as in the run, got {x.shape[1:]} in {where}.")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _text(name: str) -> str:
    """A file's name as text that can be written: bytes that are none are spelt out."""
    return name.encode("utf-8", "backslashreplace").decode()
