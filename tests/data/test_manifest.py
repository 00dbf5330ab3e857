"""Files behind stored sets: read only if they are exactly the expected ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from prismfl.data import manifest
from prismfl.data.manifest import FILES, read_checked
from prismfl.errors import UserError


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set of one small file."""
    path = "tabular/small.csv"
    monkeypatch.setitem(FILES, "small", {path: hashlib.sha256(b"a,b\n1,2\n").hexdigest()})
    return path


def refused(folder: Path | None, path: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        read_checked(folder, "small", path)
    assert str(error.value) == line


def test_the_expected_bytes_are_read(known: str, tmp_path: Path) -> None:
    (tmp_path / "tabular").mkdir()
    (tmp_path / known).write_bytes(b"a,b\n1,2\n")
    assert read_checked(tmp_path, "small", known) == b"a,b\n1,2\n"


def test_other_bytes_are_refused(known: str, tmp_path: Path) -> None:
    (tmp_path / "tabular").mkdir()
    (tmp_path / known).write_bytes(b"a,b\n1,3\n")
    found = hashlib.sha256(b"a,b\n1,3\n").hexdigest()[:16]
    refused(
        tmp_path,
        known,
        f"Expected SHA-256 {FILES['small'][known][:16]}... for {tmp_path / known}, got {found}...; the file is damaged "
        "or another version: fetch it again, or use --data breast-cancer, which needs no file.",
    )


def test_a_missing_file_names_folder_and_way_out(known: str, tmp_path: Path) -> None:
    refused(
        tmp_path,
        known,
        f"Expected {tmp_path / known} for data 'small', but it cannot be read (No such file or directory); set "
        f"PRISMFL_DATA or --data-dir to the folder that holds {known}, or use --data breast-cancer, which needs no "
        "file.",
    )


def test_without_a_folder_it_says_how_to_set_one(known: str) -> None:
    refused(
        None,
        known,
        f"Data 'small' needs {known}, but no data folder is set; set PRISMFL_DATA or --data-dir to the folder that "
        "holds it, or use --data breast-cancer, which needs no file.",
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [("mnist", "--data mnist-5k"), ("adult", "--data breast-cancer"), ("omniglot", "procedural public images")],
)
def test_the_way_out_is_of_the_same_kind(name: str, instead: str) -> None:
    with pytest.raises(UserError, match=f"or use {instead}, which needs no file"):
        read_checked(None, name, next(iter(FILES[name])))


def test_sums_are_sums_and_paths_stay_inside_the_folder() -> None:
    for files in manifest.FILES.values():
        for path, digest in files.items():
            assert len(bytes.fromhex(digest)) == 32
            assert not Path(path).is_absolute()
            assert ".." not in Path(path).parts
