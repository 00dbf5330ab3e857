"""The raw columns of a CSV or Parquet file, bounded in bytes, columns and cells before they are read."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.data.faults import Faults
from prismfl.errors import CellError, UserError
from prismfl.files.bounded import open_regular, read_regular, too_long

Columns = dict[str, list[Any]]

LIMIT = 2 * 2**30  # bytes of text, packed or not
MOST_COLUMNS = 10_000
MOST_CELLS = 100_000_000
_BATCH = 4096
_HEADER = 2**20  # bytes of the header line
_QUOTED = re.compile(r'"[^"]*"')


def read_columns(path: Path, faults: Faults | None = None) -> Columns:
    """Each column's cells by its name, as text (CSV) or as stored (Parquet).

    With lenient `faults`, a row that is none is noted there, and its cells are None.
    """
    return (read_parquet if path.suffix in (".parquet", ".pq") else read_csv)(path, faults=faults)


def check_columns(names: Sequence[str], where: str) -> None:
    """Refuse too many columns, and one name for two of them."""
    if len(names) > MOST_COLUMNS:
        raise UserError(f"Expected at most {MOST_COLUMNS:,} columns in {where}, got {len(names):,}.")
    for name, times in Counter(names).items():
        if times > 1:
            raise UserError(f"Expected distinct column names in {where}, got '{name}' twice; rename one in the header.")


def read_csv(path: Path, *, limit: int = LIMIT, faults: Faults | None = None) -> Columns:
    """The first line is the header and tells the separator. On a site one line is one record: a quotation mark that is
    left open must not swallow the records that follow."""
    noted = faults or Faults()
    lines = io.StringIO(_text(path, limit, lenient=noted.lenient), newline="")
    form = _form(lines.readline(), path)
    lines.seek(0)
    rows = iter(_line_by_line(lines, form) if noted.lenient else csv.reader(lines, **form))
    try:
        names = [name.strip() for name in next(rows) or ()]
        if not names:
            raise UserError(f"Expected UTF-8 text as the header line of {path}.")
        check_columns(names, str(path))
        found = list(_whole((row for row in rows if row != []), len(names), path, noted))
    except csv.Error as error:
        raise CellError(f"Cannot read {path} as CSV: {error}.", without_values=f"Cannot read {path} as CSV.") from None
    return {name: [row[i] for row in found] for i, name in enumerate(names)}


def _form(first: str, path: Path) -> dict[str, Any]:
    """How a file is written, by its header line alone."""
    if not first.strip():
        raise UserError(f"Expected a header line in {path}, got an empty file.")
    bare = _QUOTED.sub("", first)  # a sign within a name separates nothing
    return {"delimiter": max(",;\t|", key=bare.count), "skipinitialspace": True}


def column_names(path: Path) -> list[str]:
    """The names of a table's columns, from the header alone: no record is read."""
    if path.suffix in (".parquet", ".pq"):
        with _parquet(path, LIMIT) as opened:
            return list(opened.schema_arrow.names)
    with open_regular(path, limit=LIMIT) as file:
        try:
            raw = (gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).readline(_HEADER)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise UserError(f"Cannot unpack {path}: it is damaged; pack it anew, or give it unpacked.") from None
    first = _decoded(raw, path)
    return [name.strip() for name in next(csv.reader([first], **_form(first, path)))]


def _whole(rows: Iterator[list[str] | None], width: int, path: Path, faults: Faults) -> Iterator[Sequence[str | None]]:
    """The rows; one of another length is a fault."""
    empty: list[str | None] = [None] * width
    for row, cells in enumerate(rows):
        if (row + 1) * width > MOST_CELLS:
            raise UserError(f"Expected at most {MOST_CELLS:,} cells in {path}, got more; give a smaller file (--data).")
        if cells is not None and len(cells) == width:
            yield cells
            continue
        what = "it is not a line of text" if cells is None else "it has more or fewer values than the header"
        words = f"Expected {width} values in row {row + 1} of {path}, got {len(cells or ())}."
        faults.note(row, what, CellError(words, without_values=words))
        yield empty


def _line_by_line(lines: Iterable[str], form: dict[str, Any]) -> Iterator[list[str] | None]:
    """Each line as a row of its own; None for one that is not UTF-8, does not end, or cannot be read."""
    for line in lines:
        try:
            if not line.isascii():
                line.encode()  # bytes that are no text were let through as surrogates
            reader = csv.reader((line, ""), **form)
            cells = next(reader)
            yield cells if reader.line_num == 1 else None
        except (csv.Error, UnicodeEncodeError):
            yield None


def _text(path: Path, limit: int, *, lenient: bool) -> str:
    raw = read_regular(path, limit=limit)
    try:
        if path.suffix == ".gz":
            # Unpacked only so far as is needed to see that it is too long.
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
                raw = packed.read(limit + 1)
            if len(raw) > limit:
                raise too_long(path, limit)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"Cannot unpack {path}: it is damaged; pack it anew, or give it unpacked.") from None
    return raw.decode("utf-8-sig", errors="surrogateescape") if lenient else _decoded(raw, path)


def _decoded(raw: bytes, path: Path) -> str:
    """UTF-8 text, or an error that names what the bytes look like and how to turn them."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        likely = "UTF-16"
    else:
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            likely = "WINDOWS-1252"  # Latin-1 and its relatives: any bytes can be read as such
    raise UserError(
        f"Expected UTF-8 text in {path}; it looks like {likely}. Turn it: iconv -f {likely} -t UTF-8 {path} > utf8.csv"
    )


def read_parquet(path: Path, *, limit: int = LIMIT, faults: Faults | None = None) -> Columns:
    """The columns of a Parquet file, bounded in bytes and cells."""
    noted = faults or Faults()
    with _parquet(path, limit) as opened:
        names = list(opened.schema_arrow.names)
        check_columns(names, str(path))
        width = max(1, opened.metadata.num_columns)  # of nested columns, each leaf
        if width > MOST_COLUMNS or opened.metadata.num_rows * width > MOST_CELLS:
            raise UserError(f"Expected at most {MOST_CELLS:,} cells in {path}, got more; give a smaller file (--data).")
        found: Columns = {name: [] for name in names}
        size = 0
        for batch in opened.iter_batches(batch_size=_BATCH):
            size += batch.nbytes  # a few repeated long texts are short in the file
            if size > limit:
                raise too_long(path, limit)
            for name, cells in zip(names, batch.columns):
                found[name] += _plain_cells(cells, name, len(found[name]), noted)
    return found


@contextmanager
def _parquet(path: Path, limit: int) -> Iterator[Any]:
    """An open Parquet file; whatever is wrong with it is one line."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"Reading {path} needs pyarrow: pip install 'prismfl[parquet]', or save it as CSV.") from None
    with open_regular(path, limit=limit) as file:
        try:
            yield parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            raise CellError(
                f"Cannot read {path} as Parquet: {(str(error).splitlines() or [''])[0]}.",
                without_values=f"Cannot read {path} as Parquet.",
            ) from None


def _plain_cells(cells: Any, name: str, start: int, faults: Faults) -> list[Any]:
    """Arrow's cells as Python's values, NaN for none. A date that Python does not know or broken text is a fault."""
    try:
        return [np.nan if cell is None else cell for cell in cells.to_pylist()]
    except (ValueError, OverflowError):  # ArrowInvalid and UnicodeDecodeError among them
        found: list[Any] = []
        for cell in cells:
            try:
                value = cell.as_py()
            except (ValueError, OverflowError):
                where = f"Cannot read column '{name}', row {start + len(found) + 1}"
                error = CellError(f"{where}: {cell.type} out of range.", without_values=f"{where}.")
                faults.note(start + len(found), "a cell cannot be read", error, place=f"column '{name}'")
                value = None
            found.append(np.nan if value is None else value)
        return found
