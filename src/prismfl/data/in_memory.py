"""Own data that a program holds: arrays or frames of several sites, read as files are, into one `Dataset`.

The readers are those of npz and of tables, so a record has the same print (and the same budget) whether it came from a
file or from a variable. Nothing is fitted on the records, and what is given is left as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.arrays import Array, found_arrays
from prismfl.data.columns import MOST_CELLS, Columns, check_columns
from prismfl.data.faults import Faults
from prismfl.data.files import as_dataset, check_units
from prismfl.data.found import Bounds, Found
from prismfl.data.schema import Schema, listed
from prismfl.data.spec import Dataset
from prismfl.data.tables import Roles, found_table
from prismfl.errors import UserError

TEST_FRACTION = 0.2  # held out by content where no test part is given
UNIT = "unit"  # what ids of people are called where they have no column
_GAPS = ("NAType", "NaTType")  # what pandas calls an empty cell


def found_site(
    given: object, where: str, *, classes: Sequence[str], bounds: Bounds | None = None, units: Any = None
) -> Found:
    """The records of one (X, y), with the ids of the people behind them where they have any."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        got = f"{len(given)} values" if isinstance(given, tuple | list) else type(given).__name__
        raise UserError(f"Expected a pair (X, y) as {where}, got {got}.")
    x, y = _array(given[0], f"X of {where}"), _labels(given[1], f"y of {where}")
    if x.ndim == 0 or len(x) == 0 or len(x) != len(y):
        raise UserError(f"Expected as many labels as records in {where}, and at least one, got {len(y)} and {x.shape}.")
    if x.ndim == 2 and bounds is None:
        raise UserError(
            f"Expected declared bounds for the columns of {where}: give bounds=(low, high), or frames with a schema; "
            "they are never taken from the data."
        )
    named = {} if units is None else {UNIT: _ids(units, f"units of {where}", len(y))}
    arrays = {"x": x, "y": y, **named}
    return found_arrays(arrays, where, classes=classes, bounds=bounds, unit=UNIT if named else None, faults=Faults())


def found_frame(frame: object, where: str, *, roles: Roles, classes: Sequence[str] | None, schema: Schema) -> Found:
    """The records of one frame: anything with named columns."""
    columns = columns_of(frame, where)
    return found_table(columns, where, roles=roles, classes=classes, schema=schema, bounds=None, faults=Faults())


def columns_of(frame: object, where: str) -> Columns:
    """The cells of each column, by its name; an empty cell is NaN."""
    given: Any = frame
    names = list(given) if isinstance(given, Mapping) else getattr(given, "columns", None)
    if names is None or isinstance(given, str):
        raise UserError(f"Expected a frame (or a mapping of names to columns) as {where}, got {type(given).__name__}.")
    check_columns([str(name) for name in names], where)
    found = {str(name): _cells(given[name]) for name in names}
    lengths = {len(cells) for cells in found.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise UserError(f"Expected columns of one length, and at least one record, in {where}.")
    if len(found) * max(lengths) > MOST_CELLS:
        raise UserError(f"Expected at most {MOST_CELLS:,} cells in {where}, got more.")
    return found


def joined(sites: Sequence[Found], test: Found | None = None) -> Found:
    """The records of all sites one after the other, each with its site's number as its natural id."""
    first = sites[0]
    for number, site in enumerate((*sites, *([] if test is None else [test])), start=1):
        where = f"site {number}" if number <= len(sites) else "the test part"
        if site.x.shape[1:] != first.x.shape[1:]:
            mine, other = _form(site), _form(first)
            raise UserError(f"Expected records of one form at every site, got {mine} in {where} and {other} in site 1.")
        if site.x.dtype != first.x.dtype:
            raise UserError(
                f"Expected images of one type, got {site.x.dtype} in {where} and {first.x.dtype} in site 1."
            )
    homes = np.concatenate([np.full(len(site.y), str(number)) for number, site in enumerate(sites)])
    return replace(
        first,
        x=np.concatenate([site.x for site in sites]),  # always a copy: the given arrays are never written to
        y=np.concatenate([site.y for site in sites]),
        prints=[one for site in sites for one in site.prints],
        unit=None if first.unit is None else np.concatenate([s.unit for s in sites if s.unit is not None]),
        natural=homes,
        notices=tuple(dict.fromkeys(line for site in sites for line in site.notices)),
        test=None if test is None else (test.x.copy(), test.y),
        more=tuple([one for site in sites for one in site.more[i]] for i in range(len(first.more))),
    )


def dataset_of(found: Found, name: str, *, records: int, unit: str | None) -> Dataset:
    """The joined records, a fifth of them held out by content unless a test part was given.

    `records` is the declared number of training records in all.
    """
    check_units(found, unit or UNIT, "site")
    return as_dataset(Path(name), found, test_fraction=TEST_FRACTION, train_size=records, unit=unit)


def _form(found: Found) -> str:
    shape = found.x.shape[1:]
    return f"{shape[0]} columns" if len(shape) == 1 else f"images of shape {shape}"


def _array(given: object, where: str) -> Array:
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"Expected an array of numbers as {where}; its rows differ in length or are no numbers."
        ) from None
    if array.dtype.kind == "O":
        raise UserError(f"Expected an array of numbers as {where}, got objects of Python; from_frames takes tables.")
    return array


def _labels(given: object, where: str) -> Array:
    """One label a record: names of classes or whole numbers. A float hides which class it is."""
    array = np.asarray(given if hasattr(given, "dtype") else list(given) if isinstance(given, Sequence) else given)
    if array.dtype.kind == "O" and all(isinstance(one, str) for one in array.ravel().tolist()):
        array = array.astype(np.str_)
    if array.dtype.kind not in "biuU" or array.ndim != 1:
        hint = "; give y.astype(int) if they are whole numbers" if array.dtype.kind == "f" else ""
        raise UserError(
            f"Expected one label a record in {where}, names of classes or whole numbers, got {array.dtype} of shape "
            f"{array.shape}{hint}."
        )
    return array


def _ids(given: Any, where: str, count: int) -> npt.NDArray[Any]:
    ids = np.asarray(given)
    if ids.shape != (count,):
        raise UserError(f"Expected one id a record as {where}, got shape {ids.shape} for {count} records.")
    return ids


def _cells(column: Any) -> list[Any]:
    listing = getattr(column, "tolist", None) or getattr(column, "to_list", None)
    cells = list(listing() if listing is not None else column)
    return [np.nan if one is None or type(one).__name__ in _GAPS else one for one in cells]


def same_columns(frames: Sequence[Columns]) -> None:
    """Refuse frames whose columns differ: a record's print is made of all of them."""
    for number, columns in enumerate(frames[1:], start=2):
        odd = sorted(set(columns) ^ set(frames[0]))
        if odd:
            raise UserError(
                f"Expected the same columns in all frames; site {number} and site 1 differ in {listed(odd)}."
            )
