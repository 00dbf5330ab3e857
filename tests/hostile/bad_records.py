"""Data of a site with one record that cannot be read, of every kind that we know, in every kind of file.

`write(folder, i)` writes a file with the bad record before the i-th good one, or without it for None.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

GOOD = 12
CLASSES = ["no", "yes"]
SCHEMA = """label = 'ill'
classes = ['no', 'yes']
[[columns]]
name = 'age'
min = 0
max = 100
[[columns]]
name = 'stage'
type = 'categorical'
categories = ['1', '2', '3']
[[columns]]
name = 'sex'
type = 'binary'
categories = ['f', 'm']
"""
Writer = Callable[[Path, int | None], Path]


def good_rows() -> dict[str, list[Any]]:
    n = range(GOOD)
    return {
        "age": [float(7 * i) for i in n],  # three are clipped or lie on a bound
        "stage": [1 + i % 3 for i in n],
        "sex": ["fm"[i % 2] for i in n],
        "ill": [CLASSES[i % 3 == 0] for i in n],
        "patient": [100 + i // 2 for i in n],
        "seen": [datetime(2020, 1, 1 + i) for i in n],
        "note": [f"n{i}" for i in n],
    }


def csv_with(line: bytes) -> Writer:
    def write(folder: Path, place: int | None) -> Path:
        (folder / "schema.toml").write_text(SCHEMA)
        table = good_rows()
        lines = [",".join(map(str, cells)).encode() for cells in zip(*table.values())]
        if place is not None:
            lines.insert(place, line)
        (folder / "t.csv").write_bytes(b"\n".join([",".join(table).encode(), *lines]) + b"\n")
        return folder / "t.csv"

    return write


KINDS = """label = 'ill'
classes = ['no', 'yes']
unit = 'patient'
unit_rows = 3
[[columns]]
name = 'born'
type = 'date'
min = '1900-01-01'
max = '2020-12-31'
format = '%d.%m.%Y'
[[columns]]
name = 'weight'
min = 0
max = 200
decimal = ','
missing = true
[[columns]]
name = 'ward'
type = 'categorical'
categories = ['heart', 'rest']
other = 'rest'
missing = true
"""


def kinds_with(line: bytes) -> Writer:
    """Dates, decimal commas, missing values that are values, other categories, several rows a unit."""

    def write(folder: Path, place: int | None) -> Path:
        (folder / "schema.toml").write_text(KINDS)
        wards, weights = ("heart", "", "x-ray"), ("70,5", "", "NA", "81,0")
        lines = [
            f"{1 + i:02}.01.1950;{weights[i % 4]};{wards[i % 3]};{CLASSES[i % 2]};{100 + i // 2}".encode()
            for i in range(GOOD)
        ]
        if place is not None:
            lines.insert(place, line)
        (folder / "t.csv").write_bytes(b"\n".join([b"born;weight;ward;ill;patient", *lines]) + b"\n")
        return folder / "t.csv"

    return write


OF_KINDS = {
    "ISO for a date": b"1950-01-01;70,5;heart;no;100",
    "no such day": b"31.02.1950;70,5;heart;no;100",
    "endless day": b"1" * 100_000 + b".01.1950;70,5;heart;no;100",
    "no date": b";70,5;heart;no;100",
    "a point in the number": b"01.01.1950;70.5;heart;no;100",
    "two commas": b"01.01.1950;7,0,5;heart;no;100",
    "an infinite number": b"01.01.1950;inf;heart;no;100",
    "the label": b"01.01.1950;70,5;heart;perhaps;100",
    "no id": b"01.01.1950;70,5;heart;no;",
}
CSV = {
    "label": b"1,1,f,perhaps,100,,",
    "no label": b"1,1,f,,100,,",
    "text": b"young,1,f,no,100,,",
    "nan": b"nan,1,f,no,100,,",
    "infinite": b"1e999,1,f,no,100,,",
    "empty": b",1,f,no,100,,",
    "category": b"1,4,f,no,100,,",
    "empty category": b"1,1,,no,100,,",
    "no patient": b"1,1,f,no,,,",
    "short": b"1,1,f,no,100",
    "long": b"1,1,f,no,100,,,,,",
    "open quote": b'1,1,f,no,100,,"a note',
    "hidden quote": b'1,1,f,no,100,a"b,"c',
    "two lines": b'1,1,f,no,100,,"a\nb"',
    "not UTF-8": b"1,1,f,no,100,,caf\xe9",
    "endless cell": b"1,1,f,no,100,," + b"x" * 200_000,
    "separators": b";;;;;;;;;;;;\t\t\t\t\t\t\t\t\t\t",
}


def parquet_with(column: str, cell: Any, kind: str = "") -> Writer:
    """The whole column gets the type that the bad cell forces upon it, as it does where tables are written."""

    def write(folder: Path, place: int | None) -> Path:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        (folder / "schema.toml").write_text(SCHEMA)
        table = good_rows()
        if place is not None:
            for cells in table.values():
                cells.insert(place, cells[0])
            table[column][place] = cell
        arrays = {name: arrow.array(cells) for name, cells in table.items() if name != column}
        cells = table[column]
        if place is None:
            arrays[column] = arrow.array(cells)
        elif kind == "text":
            arrays[column] = arrow.array([c if c is None else str(c) for c in cells])
        elif kind == "floats as text":
            arrays[column] = arrow.array([str(float(c)) if isinstance(c, int) else c for c in cells])
        elif kind == "float":
            arrays[column] = arrow.array([float("nan") if c is None else float(c) for c in cells])
        elif kind == "far date":
            seconds = [c if isinstance(c, int) else int((c - datetime(1970, 1, 1)).total_seconds()) for c in cells]
            arrays[column] = arrow.array(seconds).cast(arrow.timestamp("s"))
        elif kind == "broken text":
            raw = arrow.array([c if isinstance(c, bytes) else c.encode() for c in cells], arrow.binary())
            arrays[column] = raw.view(arrow.string())
        else:
            arrays[column] = arrow.array(cells)
        parquet.write_table(arrow.table({name: arrays[name] for name in table}), folder / "t.parquet")
        return folder / "t.parquet"

    return write


PARQUET = {
    "label": ("ill", "perhaps", ""),
    "no label": ("ill", None, ""),
    "text": ("age", "young", "text"),
    "no number": ("age", None, ""),
    "infinite": ("age", float("inf"), ""),
    "category": ("stage", 4, ""),
    "no category as floats": ("stage", None, "float"),
    "category as text": ("stage", "late", "text"),
    "category as text of floats": ("stage", "late", "floats as text"),
    "no patient as floats": ("patient", None, "float"),
    "patient between two": ("patient", 1.5, "float"),
    "no patient as text": ("patient", "", "text"),
    "far date": ("seen", 10**12, "far date"),
    "broken text": ("note", b"\xff\xfe", "broken text"),
}


def npz_with(key: str, cell: Any, *, pictures: bool = False) -> Writer:
    def write(folder: Path, place: int | None) -> Path:
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (GOOD, 8, 8), dtype=np.uint8) if pictures else rng.integers(-9, 9, (GOOD, 3))
        n = range(GOOD)
        rows: dict[str, Any] = {"x": list(x), "y": [i % 2 for i in n], "patient": [i // 3 for i in n]}
        if place is not None:
            for values in rows.values():
                values.insert(place, values[0])
            bad = rows[key][place]
            if key == "x":
                bad = bad.astype(np.asarray(cell).dtype)
                bad.flat[1] = cell
            else:
                bad = cell
            rows[key] = [bad if i == place else v for i, v in enumerate(rows[key])]
            rows[key] = np.array([v.tolist() if key == "x" else v for v in rows[key]])  # one type for all of them
        np.savez(folder / "d.npz", allow_pickle=True, **{name: np.asarray(values) for name, values in rows.items()})
        return folder / "d.npz"

    return write


NPZ = {
    "nan": ("x", np.nan),
    "infinite": ("x", np.inf),
    "text": ("x", "many"),
    "complex": ("x", 1j),
    "label": ("y", 7),
    "label below": ("y", -1),
    "label as text": ("y", "perhaps"),
    "no label": ("y", np.nan),
    "no patient": ("patient", np.nan),
    "no patient as text": ("patient", ""),
    "patient between two": ("patient", 1.5),
}


def folder_with(name: str, content: bytes | None) -> Writer:
    """`content` None is a pipe, which no reader may wait for."""

    def write(folder: Path, place: int | None) -> Path:
        rng = np.random.default_rng(0)
        for label in CLASSES:
            (folder / "pets" / label).mkdir(parents=True)
        for i in range(GOOD):
            pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "pets" / CLASSES[i % 2] / f"{i:02}.png")
        if place is not None:
            path = folder / "pets" / name.format(f"{place:02}-bad.png")
            path.parent.mkdir(exist_ok=True)
            if content is None:
                os.mkfifo(path)
            else:
                path.write_bytes(content)
        return folder / "pets"

    return write


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("L", (8, 8)).save(out, "PNG")
    return out.getvalue()


def float_picture() -> bytes:
    """Pillow tells a file's kind by its content: this one holds numbers that are none."""
    out = io.BytesIO()
    Image.fromarray(np.full((8, 8), np.nan, dtype=np.float32)).save(out, "TIFF")
    return out.getvalue()


FOLDER = {
    "not a picture": ("yes/{}", b"not a picture"),
    "empty": ("no/{}", b""),
    "cut short": ("yes/{}", picture()[:45]),
    "pixels that are none": ("no/{}", float_picture()),
    "another class": ("perhaps/{}", picture()),
    "no class": ("{}", picture()),
    "a pipe": ("yes/{}", None),
}

CASES: dict[str, Writer] = {
    **{f"csv: {name}": csv_with(line) for name, line in CSV.items()},
    **{f"csv: {name} of a kind": kinds_with(line) for name, line in OF_KINDS.items()},
    **{f"parquet: {name}": parquet_with(*bad) for name, bad in PARQUET.items()},
    **{f"npz table: {name}": npz_with(*bad) for name, bad in NPZ.items()},
    **{f"npz images: {name}": npz_with(*bad, pictures=True) for name, bad in NPZ.items()},
    **{f"folder: {name}": folder_with(*bad) for name, bad in FOLDER.items()},
}
BY_KIND: dict[str, dict[str, Any]] = {
    "csv": {"unit": "patient"},
    "parquet": {"unit": "patient"},
    "npz table": {"unit": "patient", "classes": CLASSES, "features": 3, "bounds": (-8.0, 8.0)},
    "npz images": {"unit": "patient", "classes": CLASSES, "image_size": 8, "channels": 1, "bounds": (0.0, 255.0)},
    "folder": {"classes": CLASSES, "image_size": 8, "channels": 1},
}


def facts_for(name: str, path: Path) -> dict[str, Any]:
    """What site.toml says about the data of a case."""
    kind = name.partition(":")[0]
    table = {"schema_file": str(path.parent / "schema.toml")} if kind in ("csv", "parquet") else {}
    return {"data": str(path), **BY_KIND[kind], **table}
