"""Readers are bounded: what is too large, too deep or no file at all is one clear line, before it is read."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismfl.data import Column, Schema, load_path
from prismfl.data.archive import read_members
from prismfl.data.columns import MOST_COLUMNS, read_csv, read_parquet
from prismfl.data.schema_draft import load_columns
from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError
from prismfl.files.bounded import read_regular

SCHEMA = Schema((Column("a", min=0, max=1),), "y", ("0", "1"))


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return path


def refused(message: str, path: Path, **arguments: object) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_path(path, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "lie",
    [
        header((2**40, 2)),
        header((2**62, 4)),
        header((-1, 3)),
        header((10**15,), "<U0"),
        header((4,), "|O"),
        header((10**6, 10**6), "|S1000"),
        b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    ],
)
def test_a_lying_array_header_is_refused_before_room_is_made(lie: bytes, tmp_path: Path) -> None:
    path = archive(tmp_path / "d.npz", x=lie + bytes(64), y=header((4,), "<i8") + bytes(32))
    refused(r"Cannot read .* as npz of plain arrays", path, classes=["0", "1"], bounds=(0, 1))


def test_an_archive_is_bounded(tmp_path: Path) -> None:
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(200_000))
    path = archive(tmp_path / "d.npz", x=zeros.getvalue())
    assert path.stat().st_size < 10_000  # it unpacks to 1.6 MB
    assert len(read_members(path)["x"]) == 200_000
    with pytest.raises(UserError, match=r"at most 1,000,000 bytes of arrays in .*, got 1,600,128"):
        read_members(path, limit=1_000_000)
    archive(path, **{f"x{i}": b"" for i in range(1001)})
    refused(r"at most 1000 arrays", path)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("../x.txt", b"")
    refused(r"nothing but arrays", path)
    np.savez(path, x=np.zeros((3, 0)), y=np.zeros(3, dtype=np.int64))
    refused(r"at least one number a record", path, classes=["0", "1"], bounds=(0, 1))


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz", "schema.toml"])
def test_what_is_no_regular_file_is_refused_without_waiting(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    for read in (lambda: read_regular(path, limit=10), lambda: read_schema(path), lambda: load_columns(path)):
        with pytest.raises(UserError, match=r"Expected a (regular file|\.csv)"):
            read()
    if kind != "folder" and name != "schema.toml":
        refused(r"Expected a regular file", path, schema=None if name == "t.npz" else SCHEMA, classes=["0", "1"])


def test_a_pipe_among_the_pictures_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "0.png")
    os.mkfifo(tmp_path / "a" / "1.png")
    refused(r"Expected a regular file at .*1\.png", tmp_path)
    refused(r"Expected a regular file at .*1\.png", tmp_path, image_size=8, channels=1)


def test_read_regular_takes_exactly_the_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert read_regular(tmp_path / "f", limit=5) == b"12345"
    with pytest.raises(UserError, match=r"at most 4 bytes in .*f, got more"):
        read_regular(tmp_path / "f", limit=4)
    with pytest.raises(UserError, match=r"Cannot read .*none': No such file"):
        read_regular(tmp_path / "none", limit=4)


def test_tables_are_bounded_in_columns_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{i}" for i in range(60_000)) + "\n")
    refused(r"at most 10,000 columns in .*t\.csv, got 60,000", path, schema=SCHEMA)
    path.write_text(",".join(["a"] * MOST_COLUMNS) + "\n")
    refused(r"distinct column names in .*, got 'a' twice", path, schema=SCHEMA)
    with gzip.open(tmp_path / "t.csv.gz", "wb") as packed:
        packed.write(b"a,y\n" + b"0,1\n" * 250_000)
    assert (tmp_path / "t.csv.gz").stat().st_size < 5_000
    assert len(read_csv(tmp_path / "t.csv.gz", limit=1_000_004)["a"]) == 250_000
    with pytest.raises(UserError, match=r"at most 1,000,000 bytes in .*t\.csv\.gz"):
        read_csv(tmp_path / "t.csv.gz", limit=1_000_000)


def test_parquet_is_bounded(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table({f"c{i}": [1] for i in range(MOST_COLUMNS + 1)}), path)
    refused(r"at most 10,000 columns in .*, got 10,001", path, schema=SCHEMA)
    parquet.write_table(arrow.table({"a": ["long " * 2000] * 20_000}), path)
    assert path.stat().st_size < 100_000  # one text, said 20,000 times: 200 MB
    with pytest.raises(UserError, match=r"at most 50,000,000 bytes in"):
        read_parquet(path, limit=50_000_000)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.yaml", "a: &a [x,x]\n" + "".join(f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abc", "bcd")), r"\(\*name\)"),
        ("s.yaml", "[" * 100_000, "nested more than 20 deep"),
        ("s.yaml", "a: 2020-99-99", "cannot be read"),
        ("s.toml", "a = " + "[" * 100_000, "cannot be read"),
        ("s.toml", "#" * (4 * 2**20 + 1), "at most 4,194,304 bytes"),
        (
            "s.toml",
            "label = 'y'\nclasses = [0, 1]\n" + "".join(f"[[columns]]\nname = 'c{i}'\n" for i in range(10_001)),
            "at most 10,000 columns in schema .*, got 10,001",
        ),
    ],
)
def test_schema_files_are_bounded(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_schema(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_schema_of_many_columns_is_checked_once() -> None:
    columns = tuple(Column(f"c{i}", min=0, max=1) for i in range(MOST_COLUMNS))
    assert Schema(columns, "y", ("0", "1")).width == MOST_COLUMNS
    with pytest.raises(UserError, match="at most 10,000 columns in the schema, got 20,000"):
        Schema(columns * 2, "y", ("0", "1"))


def test_a_picture_larger_than_any_is_refused_by_its_header(tmp_path: Path) -> None:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "0.png")
    for side in (10_000, 60_000):
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
        content = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
        (tmp_path / "a" / "1.png").write_bytes(content)
        refused(r"Cannot read image .*1\.png \(.*pixels", tmp_path, image_size=8, channels=1)
