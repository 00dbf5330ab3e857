"""Columns of cells as the bytes of a CSV or Parquet file: an empty cell or a null where a value is missing.

Cells are written as data and as nothing else: a text that a spreadsheet would take for a formula is that text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.schema import Column, Schema
from prismfl.errors import UserError

PARQUET = (".parquet", ".pq")
KINDS = (".csv", *PARQUET)


def certificate_path(out: Path) -> Path:
    """Where the certificate of a synthetic table lies: beside it, by its name."""
    return out.with_name(f"{out.stem}.certificate.json")


def can_write(path: Path) -> None:
    """Refuse, before anything is spent, a file that is neither CSV nor Parquet, or Parquet without its library."""
    if path.suffix not in KINDS:
        raise UserError(f"Expected a .csv or .parquet file as --out, got {path}.")
    if path.suffix in PARQUET and not has_parquet():
        raise UserError(f"Writing {path} needs pyarrow: pip install 'prismfl[parquet]', or use .csv.")


def has_parquet() -> bool:
    """Whether Parquet files can be written here."""
    return util.find_spec("pyarrow") is not None


def table_bytes(columns: Mapping[str, npt.NDArray[Any]], path: Path, schema: Schema | None = None) -> bytes:
    """The columns as CSV or Parquet, by the name of the file; numbers and dates as the schema writes them."""
    declared = {column.name: column for column in schema.columns} if schema is not None else {}
    if path.suffix in PARQUET:
        return _parquet({name: _stored(values, declared.get(name)) for name, values in columns.items()})
    text = io.StringIO(newline="")
    comma = any(column.decimal == "," for column in declared.values())
    form: dict[str, Any] = {"lineterminator": "\n", "delimiter": ";" if comma else ","}
    # The header tells a reader the separator: one that stands in a name must not be taken for it.
    odd = any(sign in name for name in columns for sign in ",;|\t")
    csv.writer(text, **form, quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL).writerow(columns)
    csv.writer(text, **form).writerows(zip(*(_shown(values, declared.get(name)) for name, values in columns.items())))
    return text.getvalue().encode()


def _shown(values: npt.NDArray[Any], column: Column | None) -> Sequence[object]:
    """Cells as text shows them: nothing for what is missing, as many decimals as are declared, their sign."""
    if values.dtype.kind != "f":
        return list(values.tolist())
    cells: list[object] = [None if value != value else value for value in values.tolist()]
    if column is None or column.decimal == ".":
        return cells
    return [None if cell is None else str(cell).replace(".", column.decimal) for cell in cells]


def _stored(values: npt.NDArray[Any], column: Column | None) -> Any:
    """An Arrow array: nulls for what is missing; dates as dates where no format of their own was declared."""
    import pyarrow

    if column is not None and column.type == "date" and column.format is None:
        kind = "datetime64[D]" if column.form == "%Y-%m-%d" else "datetime64[s]"
        return pyarrow.array(np.array([cell or "NaT" for cell in values.tolist()], dtype=kind))
    return pyarrow.array(values, from_pandas=True)


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), sink)
    return sink.getvalue()
