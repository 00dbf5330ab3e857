"""npz archives: plain arrays by name, and nothing else."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prismfl.data import archive
from prismfl.data.archive import read_members
from prismfl.errors import UserError


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def zipped(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, raw in members:
            file.writestr(name, raw)
    return path


def refused(path: Path, line: str, **more: int) -> None:
    with pytest.raises(UserError) as error:
        read_members(path, **more)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back_by_their_names(save: object, tmp_path: Path) -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(["a", "b"])
    save(tmp_path / "a.npz", x=x, y=y)  # type: ignore[operator]
    found = read_members(tmp_path / "a.npz")
    assert list(found) == ["x", "y"]
    assert np.array_equal(found["x"], x)
    assert found["y"].tolist() == ["a", "b"]
    assert found["x"].dtype == np.float32


@given(
    array=hnp.arrays(
        st.sampled_from([np.uint8, np.int64, np.float32, np.float64, np.bool_]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_any_plain_array_makes_the_round_trip(array: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = zipped(tmp_path_factory.mktemp("npz") / "a.npz", [("a.npy", npy(array))])
    found = read_members(path)["a"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


def test_an_empty_archive_is_no_array(tmp_path: Path) -> None:
    assert read_members(zipped(tmp_path / "a.npz", [])) == {}


def test_pickled_content_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("x.npy", npy(np.array([{"a": 1}], dtype=object)))])
    refused(path, f"Cannot read {path} as npz of plain arrays: 'x.npy' holds object, not plain numbers or text.")


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("readme.txt", b"hello")])
    refused(path, f"Expected nothing but arrays (.npy) in {path}, got 'readme.txt'.")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    one = npy(np.zeros(1))
    path = zipped(tmp_path / "a.npz", [("x.npy", one), ("x.npy", one)])
    refused(path, f"Expected each array once in {path}, got a name twice.")


def test_too_many_arrays_are_refused(tmp_path: Path) -> None:
    one = npy(np.zeros(1))
    path = zipped(tmp_path / "a.npz", [(f"x{i}.npy", one) for i in range(archive.MEMBERS + 1)])
    refused(path, f"Expected at most {archive.MEMBERS} arrays in {path}, got {archive.MEMBERS + 1}.")


def test_more_bytes_than_allowed_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(10_000))
    path = tmp_path / "a.npz"
    refused(path, f"Expected at most 50,000 bytes of arrays in {path}, got 80,128.", limit=50_000)
    assert len(read_members(path, limit=80_128)["x"]) == 10_000


def test_an_array_cut_short_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("x.npy", npy(np.zeros(100))[:-400])])
    refused(
        path,
        f"Cannot read {path} as npz of plain arrays: the header of 'x.npy' declares more than the file holds.",
    )


@pytest.mark.parametrize("raw", [b"", b"PK", b"nothing of the kind" * 9])
def test_what_is_no_archive_is_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(raw)
    refused(path, f"Cannot read {path} as npz of plain arrays: ")


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    raw = bytearray(npy(np.zeros(3)))
    raw[6] = 9
    path = zipped(tmp_path / "a.npz", [("x.npy", bytes(raw))])
    refused(path, f"Cannot read {path} as npz of plain arrays: ")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    refused(tmp_path / "none.npz", f"Cannot read '{tmp_path / 'none.npz'}': No such file or directory.")
