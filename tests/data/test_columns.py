"""CSV, TSV and Parquet as raw columns: round trips, separators, rows that are none, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.data import columns
from prismfl.data.columns import read_columns, read_csv, read_parquet
from prismfl.data.faults import Faults
from prismfl.errors import CellError, UserError

CELL = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8).map(str.lstrip)


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(path: Path, line: str) -> None:
    with pytest.raises(UserError) as error:
        read_columns(path)
    assert str(error.value) == line.replace("PATH", str(path))


@given(rows=st.lists(st.tuples(CELL, CELL, CELL), max_size=6))
def test_what_csv_writes_comes_back(rows: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b", "c"), *rows])
    path = written(tmp_path_factory.mktemp("csv") / "t.csv", out.getvalue())
    found = read_columns(path)
    assert list(zip(found["a"], found["b"], found["c"])) == rows


@given(rows=st.lists(st.tuples(CELL, CELL), max_size=6))
def test_a_site_reads_line_by_line_and_finds_the_same(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("a", "b"), *rows])
    path = written(tmp_path_factory.mktemp("csv") / "t.csv", out.getvalue())
    faults = Faults(lenient=True)
    assert read_columns(path, faults) == read_columns(path)
    assert not faults.rows


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_header_tells_the_separator(separator: str, tmp_path: Path) -> None:
    text = "\n".join(separator.join(row) for row in (["a", "b"], ["1", "x,y" if separator != "," else "z"])) + "\n"
    assert list(read_columns(written(tmp_path / "t.csv", text))) == ["a", "b"]


def test_names_and_cells_lose_the_blanks_before_them_and_lines_without_cells_are_nothing(tmp_path: Path) -> None:
    found = read_columns(written(tmp_path / "t.csv", "a , b\n1, 2\n\n3,4\n"))
    assert found == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert list(read_columns(written(tmp_path / "t.csv", b"\xef\xbb\xbfa,b\n1,2\n"))) == ["a", "b"]


def test_packed_text_is_unpacked(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    assert read_columns(path) == {"a": ["1"], "b": ["2"]}


def test_packed_text_longer_than_the_limit_is_not_unpacked_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv.gz", gzip.compress(b"a\n" + b"1\n" * 100_000))
    with pytest.raises(UserError, match=r"^Expected at most 5,000 bytes in .* it is larger than the limit\.$"):
        read_csv(path, limit=5_000)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "Expected a header line in PATH, got an empty file."),
        ("\n\n", "Expected a header line in PATH, got an empty file."),
        ("a,a\n1,2\n", "Expected distinct column names in PATH, got 'a' twice; rename one in the header."),
        ("a,b\n1\n", "Expected 2 values in row 1 of PATH, got 1."),
        ("a,b\n1,2\n1,2,3\n", "Expected 2 values in row 2 of PATH, got 3."),
        (
            b"a,b\n\xff,2\n",
            "Expected UTF-8 text in PATH; it looks like WINDOWS-1252. Turn it: iconv -f WINDOWS-1252 -t UTF-8 PATH > "
            "utf8.csv",
        ),
        (
            "a,b\n1,2\n".encode("utf-16"),
            "Expected UTF-8 text in PATH; it looks like UTF-16. Turn it: iconv -f UTF-16 -t UTF-8 PATH > utf8.csv",
        ),
    ],
)
def test_what_is_refused(text: str | bytes, line: str, tmp_path: Path) -> None:
    refused(written(tmp_path / "t.csv", text), line)


def test_damaged_packing_is_refused(tmp_path: Path) -> None:
    refused(
        written(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,2\n")[:-6]),
        "Cannot unpack PATH: it is damaged; pack it anew, or give it unpacked.",
    )


def test_too_many_columns_are_refused(tmp_path: Path) -> None:
    names = ",".join(f"c{i}" for i in range(columns.MOST_COLUMNS + 1))
    refused(written(tmp_path / "t.csv", names + "\n"), "Expected at most 10,000 columns in PATH, got 10,001.")


def test_too_many_cells_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_CELLS", 4)
    assert read_columns(written(tmp_path / "t.csv", "a,b\n1,2\n3,4\n"))["a"] == ["1", "3"]
    refused(
        written(tmp_path / "t.csv", "a,b\n1,2\n3,4\n5,6\n"),
        "Expected at most 4 cells in PATH, got more; give a smaller file (--data).",
    )


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (b"1", "it has more or fewer values than the header"),
        (b"1,2,3", "it has more or fewer values than the header"),
        (b'1,"open', "it is not a line of text"),
        (b"\xff,2", "it is not a line of text"),
    ],
)
def test_on_a_site_a_broken_line_is_a_gap_and_swallows_no_other(bad: bytes, what: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", b"a,b\n1,2\n" + bad + b"\n5,6\n")
    faults = Faults(lenient=True)
    found = read_columns(path, faults)
    assert found == {"a": ["1", None, "5"], "b": ["2", None, "6"]}
    assert [(f.row, f.what) for f in faults.shown] == [(2, what)]


def test_the_error_of_a_short_row_quotes_no_cell(tmp_path: Path) -> None:
    with pytest.raises(CellError) as error:
        read_columns(written(tmp_path / "t.csv", "a,b\nsecret\n"))
    assert "secret" not in error.value.without_values


def test_parquet_keeps_types_and_marks_gaps(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"n": [1, 2], "t": ["x", None]}), path)
    found = read_columns(path)
    assert found["n"] == [1, 2]
    assert found["t"][0] == "x"
    assert found["t"][1] != found["t"][1]  # NaN


def test_a_parquet_file_that_is_none_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = written(tmp_path / "t.parquet", b"nothing of the kind")
    with pytest.raises(CellError) as error:
        read_parquet(path)
    assert str(error.value).startswith(f"Cannot read {path} as Parquet: ")
    assert error.value.without_values == f"Cannot read {path} as Parquet."
