"""Neighbours stay neighbours from the file to the door: one record (or unit) less in the file is that one less there.

Every reader, with and without units, every split, and the held-out part. The removed record lies at the first, the
middle and the last position of the file, or is the only one of its class and of its unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.data import load_path
from prismfl.runs.config import RunConfig
from prismfl.runs.records import read_data, split_records
from tests.laws.world import make_job

CLASSES = tuple("abcdefghij")
SITES, RECORDS, ALONE = 5, 60, 17
SPLITS = ("iid", "dirichlet(0.3)", "pathological(2)", "shards(2)", "fedlap", "natural(clinic)")
PLACES = {"first": 0, "middle": RECORDS // 2, "last": RECORDS - 1, "only one of its class and unit": ALONE}
Place = Counter[tuple[bytes, int, int | None]]


@dataclass(frozen=True)
class Row:
    """A record that no other equals; four records a patient, clinics whole patients."""

    pixels: np.ndarray[Any, Any]
    label: str
    patient: str
    clinic: str


def some_rows(count: int = RECORDS) -> list[Row]:
    pixels = np.random.default_rng(5).integers(0, 256, (count, 8, 8), dtype=np.uint8)
    rows = [Row(pixels[i], CLASSES[i % 9], f"p{i // 4}", f"c{i // 4 % 7}") for i in range(count)]
    rows[ALONE] = Row(pixels[ALONE], CLASSES[9], "alone", "c3")
    return rows


def write_folder(folder: Path, rows: Sequence[Row]) -> Path:
    for name in CLASSES:
        (folder / "pets" / name).mkdir(parents=True)
    for i, row in enumerate(rows):
        Image.fromarray(row.pixels).save(folder / "pets" / row.label / f"{i:03}.png")
    return folder / "pets"


def columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {f"f{j}": [int(row.pixels[0, j]) for row in rows] for j in range(8)}
    return table | {key: [getattr(row, key) for row in rows] for key in ("label", "patient", "clinic")}


def write_schema(folder: Path) -> None:
    lines = ["label = 'label'", f"classes = {list(CLASSES)}"]
    lines += [f"[[columns]]\nname = 'f{j}'\nmin = 0\nmax = 255" for j in range(8)]
    (folder / "schema.toml").write_text("\n".join(lines))


def write_csv(folder: Path, rows: Sequence[Row]) -> Path:
    write_schema(folder)
    table = columns(rows)
    lines = [",".join(table), *(",".join(map(str, cells)) for cells in zip(*table.values()))]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return folder / "t.csv"


def write_parquet(folder: Path, rows: Sequence[Row]) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    write_schema(folder)
    parquet.write_table(arrow.table(columns(rows)), folder / "t.parquet")
    return folder / "t.parquet"


def write_npz(folder: Path, rows: Sequence[Row]) -> Path:
    ids = {key: np.array([getattr(row, key) for row in rows]) for key in ("patient", "clinic")}
    x, y = np.stack([row.pixels for row in rows]), np.array([row.label for row in rows])
    np.savez(folder / "d.npz", allow_pickle=True, x=x, y=y, **ids)
    return folder / "d.npz"


WRITERS: dict[str, Callable[[Path, Sequence[Row]], Path]] = {
    "folder": write_folder,
    "csv": write_csv,
    "parquet": write_parquet,
    "npz": write_npz,
}


def places(folder: Path, rows: Sequence[Row], *, reader: str, split: str, unit: str) -> list[Place]:
    """The records that each site trains on, and those that are held out."""
    folder.mkdir()
    path = WRITERS[reader](folder, rows)
    schema = str(folder / "schema.toml") if reader in ("csv", "parquet") else None
    config = RunConfig(
        data=str(path), schema_file=schema, classes=list(CLASSES), unit=unit, sites=SITES, split=split, seed=3
    )
    data = read_data(config)
    x, y = data.x_train.numpy(), data.y_train.tolist()
    units = [None] * len(y) if data.unit_train is None else data.unit_train.tolist()
    found: list[Place] = [
        Counter((x[i].tobytes(), y[i], units[i]) for i in part.tolist())
        for part in split_records(config, data, make_job("dp-fedavg"))
    ]
    held = zip(data.x_test.numpy(), data.y_test.tolist())
    return [*found, Counter((one.tobytes(), label, None) for one, label in held)]


def changed(before: list[Place], after: list[Place]) -> tuple[int, int]:
    """Records that a place has lost, and records that a place has gained."""
    return sum((a - b).total() for a, b in zip(before, after)), sum((b - a).total() for a, b in zip(before, after))


def cases() -> list[tuple[str, str, str]]:
    found = [
        (reader, split, unit)
        for reader in WRITERS
        for split in SPLITS
        for unit in ("record", "patient")
        if reader != "folder" or (unit == "record" and "natural" not in split)
    ]
    return found


@pytest.mark.parametrize(("reader", "split", "unit"), cases())
def test_one_less_in_the_file_is_that_one_less_at_its_site(reader: str, split: str, unit: str, tmp_path: Path) -> None:
    rows = some_rows()
    before = places(tmp_path / "all", rows, reader=reader, split=split, unit=unit)
    assert sum(place.total() for place in before) == RECORDS
    assert sum(bool(place) for place in before[:-1]) >= 3, "a split that fills one site alone would show nothing"
    assert before[-1], "without a held-out part its rule is not looked at"
    for name, i in PLACES.items():
        gone = [i] if unit == "record" else [j for j in range(RECORDS) if rows[j].patient == rows[i].patient]
        left = [row for j, row in enumerate(rows) if j not in gone]
        after = places(tmp_path / name, left, reader=reader, split=split, unit=unit)
        lost, gained = changed(before, after)
        assert (lost, gained) == (len(gone), 0), f"{name}: {lost} records left a place and {gained} came to another"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("reader", ["csv", "parquet", "npz"])
def test_a_patient_lies_at_one_site(reader: str, split: str, tmp_path: Path) -> None:
    found = places(tmp_path / "all", some_rows(), reader=reader, split=split, unit="patient")
    homes: dict[int | None, set[int]] = {}
    for site, place in enumerate(found[:-1]):
        for _, _, unit in place:
            homes.setdefault(unit, set()).add(site)
    assert len(homes) > 8
    assert max(len(sites) for sites in homes.values()) == 1, sum(len(sites) > 1 for sites in homes.values())


@pytest.mark.parametrize("reader", WRITERS)
def test_the_order_of_the_file_moves_nobody(reader: str, tmp_path: Path) -> None:
    rows = some_rows()
    one = places(tmp_path / "a", rows, reader=reader, split="dirichlet(0.3)", unit="record")
    assert changed(one, places(tmp_path / "b", rows[::-1], reader=reader, split="dirichlet(0.3)", unit="record")) == (
        0,
        0,
    )


def as_a_site(folder: Path, reader: str, rows: Sequence[Row], bad: int | None) -> tuple[Place, int]:
    """What a site's reading leaves of a file with a bad record before the `bad`-th: records, and how many were not."""
    folder.mkdir()
    given = list(rows)
    if bad is not None:
        given.insert(bad, Row(rows[0].pixels, "nothing declared", "p0", "c0"))
    path = WRITERS[reader](folder, given) if reader != "folder" else write_folder(folder, rows)
    if reader == "folder" and bad is not None:
        (path / CLASSES[bad % 9] / f"{bad:03}-bad.png").write_bytes(b"no picture")
    declared: dict[str, Any] = {"classes": CLASSES, "unit": None if reader == "folder" else "patient"}
    if reader in ("csv", "parquet"):
        declared["schema"] = folder / "schema.toml"
    else:
        declared |= {"image_size": 8, "channels": 1, "bounds": (0.0, 255.0) if reader == "npz" else None}
    data = load_path(path, lenient=True, **declared)
    units = [None] * len(data.y_train) if data.unit_train is None else data.unit_train.tolist()
    assert data.prints_train is not None
    contents = [one.tobytes() + print for one, print in zip(data.x_train.numpy(), data.prints_train)]
    return Counter(zip(contents, data.y_train.tolist(), units)), data.left_out


@pytest.mark.parametrize("reader", WRITERS)
def test_a_site_leaves_a_bad_record_out_and_nothing_else(reader: str, tmp_path: Path) -> None:
    """At every place, and beside one record less: neighbours stay neighbours whatever is wrong with some record."""
    rows = some_rows()
    whole, none = as_a_site(tmp_path / "whole", reader, rows, None)
    assert (whole.total(), none) == (RECORDS, 0)
    for name, i in {**PLACES, "after the last": RECORDS}.items():
        assert as_a_site(tmp_path / f"bad {name}", reader, rows, i) == (whole, 1), name
        less = [row for j, row in enumerate(rows) if j != min(i, RECORDS - 1)]
        found, left = as_a_site(tmp_path / f"less {name}", reader, less, len(less) // 2)
        assert ((whole - found).total(), (found - whole).total(), left) == (1, 0, 1), name


def test_a_site_that_declares_no_test_part_puts_nothing_aside(tmp_path: Path) -> None:
    for reader, write in WRITERS.items():
        (tmp_path / reader).mkdir()
        path = write(tmp_path / reader, some_rows())
        schema = tmp_path / reader / "schema.toml" if reader in ("csv", "parquet") else None
        assert len(load_path(path, classes=CLASSES, schema=schema).y_train) == RECORDS, reader
