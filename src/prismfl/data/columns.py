"""The raw columns of a CSV or Parquet file, bounded in bytes, columns and cells before they are read."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.errors import UserError
from prismfl.files import open_regular, read_regular, too_long

Columns = dict[str, list[Any]]

LIMIT = 2 * 2**30  # bytes of text, packed or not
MOST_COLUMNS = 10_000
MOST_CELLS = 500_000_000
_BATCH = 4096


def read_columns(path: Path) -> Columns:
    """Each column's cells by its name, as text (CSV) or as stored (Parquet)."""
    return read_parquet(path) if path.suffix in (".parquet", ".pq") else read_csv(path)


def check_columns(names: Sequence[str], where: str) -> None:
    """Refuse too many columns, and one name for two of them."""
    if len(names) > MOST_COLUMNS:
        raise UserError(f"Expected at most {MOST_COLUMNS:,} columns in {where}, got {len(names):,}.")
    for name, times in Counter(names).items():
        if times > 1:
            raise UserError(f"Expected distinct column names in {where}, got '{name}' twice.")


def read_csv(path: Path, *, limit: int = LIMIT) -> Columns:
    text = _text(path, limit)
    first = text.partition("\n")[0]
    if not first.strip():
        raise UserError(f"Expected a header line in {path}, got an empty file.")
    separator = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    try:
        rows = (row for row in lines if row)
        names = [name.strip() for name in next(rows)]
        check_columns(names, str(path))
        found = list(_whole(rows, len(names), path))
    except csv.Error as error:
        raise UserError(f"Cannot read {path} as CSV: {error}.") from None
    return {name: [row[i] for row in found] for i, name in enumerate(names)}


def _whole(rows: Iterator[list[str]], width: int, path: Path) -> Iterator[list[str]]:
    """The rows; one of another length ends the reading."""
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise UserError(f"Expected {width} values in row {number} of {path}, got {len(row)}.")
        if number * width > MOST_CELLS:
            raise UserError(f"Expected at most {MOST_CELLS:,} cells in {path}, got more.")
        yield row


def _text(path: Path, limit: int) -> str:
    raw = read_regular(path, limit=limit)
    try:
        if path.suffix == ".gz":
            # Unpacked only so far as is needed to see that it is too long.
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
                raw = packed.read(limit + 1)
            if len(raw) > limit:
                raise too_long(path, limit)
        return raw.decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"Expected UTF-8 text in {path}; it is damaged or in another encoding.") from None


def read_parquet(path: Path, *, limit: int = LIMIT) -> Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"Reading {path} needs pyarrow: pip install 'prismfl[parquet]', or save it as CSV.") from None
    with open_regular(path, limit=limit) as file:
        try:
            opened = parquet.ParquetFile(file)
            names = list(opened.schema_arrow.names)
            check_columns(names, str(path))
            width = max(1, opened.metadata.num_columns)  # of nested columns, each leaf
            if width > MOST_COLUMNS or opened.metadata.num_rows * width > MOST_CELLS:
                raise UserError(f"Expected at most {MOST_CELLS:,} cells in {path}, got more.")
            found: Columns = {name: [] for name in names}
            size = 0
            for batch in opened.iter_batches(batch_size=_BATCH):
                size += batch.nbytes  # a few repeated long texts are short in the file
                if size > limit:
                    raise too_long(path, limit)
                for name, cells in batch.to_pydict().items():
                    found[name] += [np.nan if cell is None else cell for cell in cells]
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"Cannot read {path} as Parquet: {(str(error).splitlines() or [''])[0]}.") from None
    return found
