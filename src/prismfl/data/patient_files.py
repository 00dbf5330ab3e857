"""A folder of patients: one table (JSON lines, CSV or Parquet) whose columns hold or name each patient's parts.

A picture or a text that is not there, or cannot be read, is missing in that record: a value, not an error. Names of
files stay inside the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.data.columns import MOST_CELLS, MOST_COLUMNS, Columns, check_columns, read_columns
from prismfl.data.decoding import decoded, floats, quiet
from prismfl.data.faults import Faults
from prismfl.data.found import TABLES, Found
from prismfl.data.ids import id_column
from prismfl.data.parts import RecordPart, column_bytes
from prismfl.data.parts_file import PatientFile
from prismfl.data.prints import bag_prints, canonical_cell, row_print, row_prints
from prismfl.data.schema import class_codes
from prismfl.data.tables import missing_column
from prismfl.data.texts import LOOKED, Bytes, cleaned, text_bytes
from prismfl.errors import CellError, UserError
from prismfl.files.bounded import open_regular

LINES = (".jsonl", ".ndjson")
LIMIT = 2 * 2**30
MOST_TEXT = 2**20  # bytes of a .txt file that are read
MOST_LINE = 2**25  # bytes of a line of JSON
MOST_BYTES = 16 * 2**30  # of all records
LONG_TEXT = 60  # characters of a text that is not written twice by chance
SAME = 0.9  # of the records whose text holds the name of their class: then the label stands in the text


def read_patients(place: Path, declared: PatientFile, faults: Faults) -> Found:
    """The records of a folder (or of its table alone), as rows of bytes."""
    table_path = place if place.is_file() else table_of(place)
    folder, parts = table_path.parent, declared.parts
    wanted = [declared.label, declared.unit, declared.image, declared.text]
    names = [*dict.fromkeys(w for w in wanted if w is not None), *(parts.schema.names if parts.schema else ())]
    table = read_rows(table_path, faults, names)
    for name in names:
        if name not in table:
            raise UserError(missing_column(name, table, table_path))
    y = class_codes(table[declared.label], declared.classes, faults)
    if len(y) * parts.width > MOST_BYTES:
        raise UserError(
            f"Expected at most {MOST_BYTES:,} bytes of records, got {len(y) * parts.width:,}; declare smaller pictures "
            "(size) or texts (bytes)."
        )
    given: dict[str, Bytes] = {}
    known: list[list[bytes]] = [[] for _ in y]  # prints of each record's parts
    if (part := parts.find("image")) is not None and declared.image is not None:
        given["image"] = _pictures(folder, table[declared.image], part, known)
    texts: list[object] = []
    if (part := parts.find("text")) is not None and declared.text is not None:
        cells = table[declared.text]
        texts = [_file(folder, cell) for cell in cells] if declared.text_files else cells
        given["text"] = text_bytes(texts, part.width)
        for own, text in zip(known, texts):
            own += _text_prints(text)
    if parts.schema is not None:
        given["table"] = column_bytes(parts.schema.encode(table, faults).numpy())
    unit = None if declared.unit is None else id_column(table[declared.unit], declared.unit, faults)
    kept = faults.kept(len(y))
    rows = parts.joined(given) if len(y) else np.zeros((0, parts.width), dtype=np.uint8)
    prints = [hashlib.sha256(rows[i].tobytes()).digest() for i in kept]
    used = {name: [cells[i] for i in kept] for name, cells in table.items() if name != declared.unit}
    features = [cells for name, cells in used.items() if name != declared.label]
    bag = bag_prints(list(zip(*features))) if features else prints
    more = [_filled_print({name: cells[i] for name, cells in used.items()}, declared.label) for i in range(len(kept))]
    longest = max((len(known[i]) for i in kept), default=0)
    each = [[(known[i][k] if k < len(known[i]) else prints[j]) for j, i in enumerate(kept)] for k in range(longest)]
    return Found(
        parts.kind,
        rows[kept],
        y[kept],
        declared.classes,
        prints,
        unit=None if unit is None else unit[kept],
        notices=tuple(_label_in_text(texts, y, declared.classes)),
        faults=faults,
        more=(more, row_prints(used), bag, *each),
    )


def _filled_print(cells: Mapping[str, object], label: str) -> bytes:
    """Of the cells of a record that are not empty: what others have besides changes nothing of it."""
    return row_print({name: cell for name, cell in cells.items() if name != label and canonical_cell(cell)})


def _text_prints(text: object) -> list[bytes]:
    """Of a text that is long enough to be somebody's, wherever it stands and however many bytes are declared."""
    whole = cleaned(text, MOST_TEXT // LOOKED)
    return [hashlib.sha256(b"prismfl text\0" + whole.casefold().encode()).digest()] if len(whole) >= LONG_TEXT else []


def table_of(folder: Path) -> Path:
    """The one table in a folder of patients."""
    found = sorted(p for p in folder.iterdir() if p.name.lower().endswith((*LINES, *TABLES)) and p.is_file())
    if len(found) != 1:
        told = ", ".join(p.name for p in found[:3]) or "none"
        raise UserError(f"Expected one table of patients (.jsonl, .csv or .parquet) in {folder}, got {told}.")
    return found[0]


def read_rows(path: Path, faults: Faults, wanted: Sequence[str]) -> Columns:
    """The columns of a table. Of JSON lines those that any line has; on a site those that are `wanted`, whether any
    line has them or not: which keys there are would tell of records."""
    if path.suffix.lower() not in LINES:
        return read_columns(path, faults)
    records: list[dict[str, Any]] = []
    with open_regular(path, limit=LIMIT) as file:
        while line := file.readline(MOST_LINE + 1):
            whole = len(line) <= MOST_LINE
            while not whole and line and not line.endswith(b"\n"):
                line = file.readline(MOST_LINE)  # the rest of a line that is left out
            if whole and not line.strip():
                continue
            found = _object(line) if whole else None
            if found is None:
                words = f"Line {len(records) + 1} of {path} is not a JSON object of at most {MOST_COLUMNS:,} keys."
                faults.note(len(records), "it is not a JSON object", CellError(words, without_values=words))
            records.append(found or {})
            if len(records) * max(1, len(wanted)) > MOST_CELLS:
                raise UserError(f"Expected at most {MOST_CELLS:,} cells in {path}, got more; give a smaller file.")
    every: Iterable[str] = wanted if faults.lenient else (str(name) for one in records for name in one)
    names = list(dict.fromkeys(every))
    check_columns(names, str(path))
    return {name: [_cell(record.get(name)) for record in records] for name in names}


def _object(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds, None where it holds none, or one that no record can be."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and len(found) <= MOST_COLUMNS else None


def _cell(value: object) -> object:
    return value if isinstance(value, str | int | float | bool) or value is None else json.dumps(value)


def _inside(folder: Path, cell: object) -> Path | None:
    """The file that a cell names, None where it names none inside the folder."""
    name = cleaned(cell, 1000)
    try:
        path = (folder / name).resolve()
        return path if name and path.is_relative_to(folder.resolve()) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _pictures(folder: Path, cells: Sequence[object], part: RecordPart, known: Sequence[list[bytes]]) -> Bytes:
    """The pictures that cells name; the print of each goes to what is `known` of its record."""
    found = np.zeros((len(cells), *part.shape), dtype=np.uint8)
    channels, height, width = part.shape
    with quiet():
        for row, cell, own in zip(found, cells, known):
            path = _inside(folder, cell)
            if path is None:
                continue
            try:
                pixels, seen, _ = decoded(path, (width, height), channels)
            except (CellError, UserError):
                continue
            own.append(seen)
            row[:] = np.maximum(np.round(255 * floats(pixels)), 1).astype(np.uint8)  # a black picture is not missing
    return found


def _file(folder: Path, cell: object) -> bytes | None:
    """The text of the .txt file that a cell names, or that lies beside the picture that it names. No other file: the
    table holds other people's records."""
    stem, dot, ending = cleaned(cell, 1000).rpartition(".")
    path = _inside(folder, f"{stem}.{ending if ending.lower() == 'txt' else 'txt'}" if dot else None)
    if path is None or path.suffix.lower() != ".txt":
        return None
    try:
        with open_regular(path, limit=LIMIT) as file:
            return bytes(file.read(MOST_TEXT))
    except (UserError, OSError):
        return None


def _label_in_text(texts: Sequence[object], y: np.ndarray, classes: Sequence[str]) -> list[str]:
    """A line for whoever owns the data if most texts hold the name of their own class."""
    names = [name.casefold() for name in classes]
    told = [(cleaned(text, 2000).casefold(), names[label]) for text, label in zip(texts, y.tolist()) if text]
    inside = sum(name in text for text, name in told)
    others = sum(any(other in text for other in names if other != name) for text, name in told)
    if not told or inside < SAME * len(told) or others > 0.5 * len(told):
        return []
    return [
        "Most texts hold the name of their class: what is learnt may be the label itself; take it out of the text "
        "unless it is meant so."
    ]
