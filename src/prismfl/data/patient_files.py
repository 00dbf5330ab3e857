"""A folder of patients: one table (JSON lines, CSV or Parquet) whose columns hold or name each patient's parts.

A picture or a text that is not there, or cannot be read, is missing in that record: a value, not an error. Names of
files stay inside the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.data.columns import Columns, check_columns, read_columns
from prismfl.data.decoding import decoded, floats
from prismfl.data.faults import Faults
from prismfl.data.found import TABLES, Found
from prismfl.data.ids import id_column
from prismfl.data.parts import RecordPart, column_bytes
from prismfl.data.parts_file import PatientFile
from prismfl.data.prints import bag_prints, row_prints
from prismfl.data.schema import class_codes
from prismfl.data.tables import missing_column
from prismfl.data.texts import Bytes, cleaned, text_bytes
from prismfl.errors import CellError, UserError
from prismfl.files.bounded import open_regular

LINES = (".jsonl", ".ndjson")
LIMIT = 2 * 2**30
MOST_TEXT = 2**20  # bytes of a .txt file that are read
SAME = 0.9  # of the records whose text holds the name of their class: then the label stands in the text


def read_patients(place: Path, declared: PatientFile, faults: Faults) -> Found:
    """The records of a folder (or of its table alone), as rows of bytes."""
    table_path = place if place.is_file() else table_of(place)
    folder, table = table_path.parent, read_rows(table_path, faults)
    parts, wanted = declared.parts, [declared.label, declared.unit, declared.image, declared.text]
    for name in [*(w for w in wanted if w is not None), *(parts.schema.names if parts.schema else ())]:
        if name not in table:
            raise UserError(missing_column(name, table, table_path))
    y = class_codes(table[declared.label], declared.classes, faults)
    given: dict[str, Bytes] = {}
    if (part := parts.find("image")) is not None and declared.image is not None:
        given["image"] = _pictures(folder, table[declared.image], part)
    texts: list[object] = []
    if (part := parts.find("text")) is not None and declared.text is not None:
        cells = table[declared.text]
        texts = [_file(folder, cell) for cell in cells] if declared.text_files else cells
        given["text"] = text_bytes(texts, part.width)
    if parts.schema is not None:
        given["table"] = column_bytes(parts.schema.encode(table, faults).numpy())
    unit = None if declared.unit is None else id_column(table[declared.unit], declared.unit, faults)
    kept = faults.kept(len(y))
    rows = parts.joined(given) if len(y) else np.zeros((0, parts.width), dtype=np.uint8)
    used = {name: [cells[i] for i in kept] for name, cells in table.items() if name != declared.unit}
    prints = [hashlib.sha256(rows[i].tobytes()).digest() for i in kept]
    bag = bag_prints(list(zip(*(cells for name, cells in used.items() if name != declared.label))))
    return Found(
        parts.kind,
        rows[kept],
        y[kept],
        declared.classes,
        prints,
        unit=None if unit is None else unit[kept],
        notices=tuple(_label_in_text(texts, y, declared.classes)),
        faults=faults,
        more=(row_prints(used), bag),
    )


def table_of(folder: Path) -> Path:
    """The one table in a folder of patients."""
    found = sorted(p for p in folder.iterdir() if p.name.lower().endswith((*LINES, *TABLES)) and p.is_file())
    if len(found) != 1:
        told = ", ".join(p.name for p in found[:3]) or "none"
        raise UserError(f"Expected one table of patients (.jsonl, .csv or .parquet) in {folder}, got {told}.")
    return found[0]


def read_rows(path: Path, faults: Faults) -> Columns:
    """The columns of a table; of JSON lines those that any line has."""
    if path.suffix.lower() not in LINES:
        return read_columns(path, faults)
    records: list[dict[str, Any]] = []
    with open_regular(path, limit=LIMIT) as file:
        for line in file:
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if not isinstance(found, dict):
                words = f"Line {len(records) + 1} of {path} is not a JSON object."
                faults.note(len(records), "it is not a JSON object", CellError(words, without_values=words))
                found = {}
            records.append(found)
    names = list(dict.fromkeys(str(name) for record in records for name in record))
    check_columns(names, str(path))
    return {name: [_cell(record.get(name)) for record in records] for name in names}


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


def _pictures(folder: Path, cells: Sequence[object], part: RecordPart) -> Bytes:
    found = np.zeros((len(cells), *part.shape), dtype=np.uint8)
    channels, height, width = part.shape
    for row, cell in zip(found, cells):
        path = _inside(folder, cell)
        if path is None:
            continue
        try:
            pixels = floats(decoded(path, (width, height), channels)[0])
        except (CellError, UserError):
            continue
        row[:] = np.maximum(np.round(255 * pixels), 1).astype(np.uint8)  # a black picture is not a missing one
    return found


def _file(folder: Path, cell: object) -> bytes | None:
    path = _inside(folder, cell)
    if path is None:
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
