"""What names and headers tell, without a record."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from prismfl.data.layout import layout_of, rounded
from prismfl.errors import UserError


def folders(root: Path, **classes: int) -> Path:
    """Class folders of files that are no images: to open one is an error."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i}.png").write_bytes(b"no image")
    return root


@pytest.mark.parametrize(("count", "told"), [(0, 1), (7, 7), (57, 50), (2412, 2000), (3000, 3000), (99_999, 90_000)])
def test_a_count_is_told_with_one_figure(count: int, told: int) -> None:
    assert rounded(count) == told


def test_class_folders_by_their_names_alone(tmp_path: Path) -> None:
    found = layout_of(folders(tmp_path / "s", cat=23, dog=31))
    assert (found.form, found.names, found.about, found.own_test) == ("folders", ("cat", "dog"), 50, False)
    assert "54" not in found.words()


def test_a_test_part_of_its_own(tmp_path: Path) -> None:
    folders(tmp_path / "train", cat=20, dog=20)
    folders(tmp_path / "test", cat=5, dog=5)
    found = layout_of(tmp_path)
    assert (found.own_test, found.about) == (True, 40)


def test_arrays_by_their_headers_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((123, 8, 8, 3), np.uint8), y=np.zeros(123), patient=np.zeros(123))
    found = layout_of(tmp_path / "d.npz")
    assert (found.form, found.shape, found.about, found.ids) == ("npz", (3, 8, 8), 100, ("patient",))


def test_a_table_by_its_first_line_alone(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"age;sex\n\xff\xff not text at all")
    assert layout_of(tmp_path / "t.csv").names == ("age", "sex")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"age|sex\n1|2\n"))
    assert layout_of(tmp_path / "t.csv.gz").names == ("age", "sex")


def test_a_parquet_file_by_its_schema(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"age": [1, 2], "sex": ["f", "m"]}), tmp_path / "t.parquet")
    assert layout_of(tmp_path / "t.parquet").names == ("age", "sex")


def test_columns_that_are_counted_are_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,1,2\n5,6,7\n")
    assert layout_of(tmp_path / "t.csv").names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("nothing", None, "there is nothing"),
        ("d.zip", b"PK", "packed archive; unpack it"),
        ("d.txt", b"x", "Expected a folder, .csv"),
        ("t.csv", b"31,62\n47,12\n", "add a header line"),
        ("t.csv", b"a,b,a\n", "'a' twice"),
        ("t.csv", b"\xff\xfea\x00", "looks like UTF-16"),
        ("t.csv", b"\xe4lter,b\n", "looks like WINDOWS-1252"),
        ("t.csv", b"", "Expected a header line"),
        ("t.csv.gz", b"no gzip", "Cannot unpack"),
    ],
)
def test_what_it_is_not(name: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        layout_of(tmp_path / name)
    assert words in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    folders(tmp_path / "a", only=3)
    with pytest.raises(UserError, match="make one folder for each class"):
        layout_of(tmp_path / "a")
    folders(tmp_path / "b" / "images", cat=2, dog=2)
    with pytest.raises(UserError, match=r"did you mean .*b/images\?"):
        layout_of(tmp_path / "b")


def test_arrays_that_are_no_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.zeros((5, 4)), y=np.zeros(5))
    with pytest.raises(UserError, match="save it as CSV"):
        layout_of(tmp_path / "t.npz")
    np.savez(tmp_path / "n.npz", z=np.zeros(5))
    with pytest.raises(UserError, match="Expected array 'x'"):
        layout_of(tmp_path / "n.npz")
    np.savez(tmp_path / "o.npz", x=np.zeros((5, 4, 4, 2)))
    with pytest.raises(UserError, match="1 or 3"):
        layout_of(tmp_path / "o.npz")
