"""CSV and Parquet tables with a label column, encoded by a declared schema."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.data.files import Bounds, Records, id_column
from prismfl.data.schema import Column, Schema, listed, plain
from prismfl.errors import UserError

Columns = dict[str, list[Any]]


def read_table(
    path: Path,
    *,
    label: str | None,
    classes: Sequence[str] | None,
    schema: Schema | None,
    bounds: Bounds | None,
    unit: str | None,
    natural: str | None,
) -> Records:
    table = _parquet(path) if path.suffix in (".parquet", ".pq") else _csv(path)
    target = label or (schema.label if schema else None)
    if target is None:
        raise UserError(f"Expected a label column for {path}; declare label as one of {listed(table)}.")
    unit = unit or (schema.unit if schema else None)
    for role, name in (("label", target), ("unit", unit), ("natural", natural)):
        if name is not None and name not in table:
            raise UserError(f"Expected {role} column '{name}' in {path}, got columns {listed(table)}.")
    declared = _declared(path, table, target=target, classes=classes, schema=schema, bounds=bounds, ids=(unit, natural))
    for name in declared.names:
        if name not in table:
            raise UserError(f"Expected column '{name}' of the schema in {path}, got columns {listed(table)}.")
    if not table[target]:
        raise UserError(f"Expected records in {path}, got only a header.")
    try:
        x, y = declared.encode(table), declared.encode_labels(table[target])
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    ids = {name: id_column(table[name], name) for name in (unit, natural) if name is not None}
    unused = [name for name in table if name not in (target, unit, natural, *declared.names)]
    return Records(
        "table",
        x.numpy(),
        y.numpy(),
        declared.classes,
        unit=ids.get(unit or ""),
        natural=ids.get(natural or ""),
        schema=declared,
        notices=(f"Ignored columns that are not in the schema: {listed(unused)}.",) if unused else (),
    )


def _declared(
    path: Path,
    table: Columns,
    *,
    target: str,
    classes: Sequence[str] | None,
    schema: Schema | None,
    bounds: Bounds | None,
    ids: tuple[str | None, ...],
) -> Schema:
    """The schema to encode with: the given one, or numeric columns that share the declared bounds."""
    names = tuple(plain(name) for name in classes) if classes else (schema.classes if schema else ())
    if not names:
        raise UserError(
            f"Expected declared classes for label '{target}' of {path}; they are never taken from the data."
        )
    if schema is not None:
        return Schema(schema.columns, target, names, unit=ids[0], train_size=schema.train_size)
    if bounds is None:
        raise UserError(f"Expected a schema (or common bounds) for the columns of {path}; none is taken from the data.")
    features = [name for name in table if name != target and name not in ids]
    return Schema(tuple(Column(n, min=bounds[0], max=bounds[1]) for n in features), target, names, unit=ids[0])


def _csv(path: Path) -> Columns:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"Expected UTF-8 text in {path}; it is damaged or in another encoding.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    first = text.partition("\n")[0]
    if not first.strip():
        raise UserError(f"Expected a header line in {path}, got an empty file.")
    separator = max(",;\t", key=first.count)
    try:
        header, *rows = (
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True) if row
        )
    except csv.Error as error:
        raise UserError(f"Cannot read {path} as CSV: {error}.") from None
    names = [name.strip() for name in header]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"Expected distinct column names in {path}, got '{name}' twice.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise UserError(f"Expected {len(names)} values in row {number} of {path}, got {len(row)}.")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _parquet(path: Path) -> Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"Reading {path} needs pyarrow: pip install 'prismfl[parquet]', or save it as CSV.") from None
    try:
        found: Columns = parquet.read_table(path).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"Cannot read {path} as Parquet: {str(error).splitlines()[0]}.") from None
    return {name: [np.nan if value is None else value for value in column] for name, column in found.items()}
