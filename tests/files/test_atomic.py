"""Files that are whole or absent, and as closed to others as their folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismfl.files.atomic import make_folder, opener, write_atomically


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "f.json", b"{}")
    assert (tmp_path / "a" / "b" / "f.json").read_bytes() == b"{}"


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"old")

    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]  # and nothing half written is left


def test_writing_again_replaces(tmp_path: Path) -> None:
    for content in (b"one", b"a longer two", b"3"):
        write_atomically(tmp_path / "f", content)
        assert (tmp_path / "f").read_bytes() == content


def test_in_an_open_folder_the_umask_decides(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write_atomically(tmp_path / "f", b"")
    assert mode(tmp_path / "f") == 0o644


def test_in_a_closed_folder_everything_is_closed(tmp_path: Path) -> None:
    make_folder(tmp_path / "own", closed=True)
    write_atomically(tmp_path / "own" / "deep" / "f", b"")
    assert mode(tmp_path / "own") == 0o700
    assert mode(tmp_path / "own" / "deep") == 0o700
    assert mode(tmp_path / "own" / "deep" / "f") == 0o600


def test_appending_through_the_opener_is_closed_as_well(tmp_path: Path) -> None:
    make_folder(tmp_path / "own", closed=True)
    with open(tmp_path / "own" / "log", "a", opener=opener) as file:
        file.write("line\n")
    assert mode(tmp_path / "own" / "log") == 0o600


def test_a_folder_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    make_folder(tmp_path / "a", closed=True)
    assert mode(tmp_path / "a") == 0o755


def test_a_new_folder_must_be_new(tmp_path: Path) -> None:
    make_folder(tmp_path / "a", new=True)
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a", new=True)


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(OSError, match="a"):
        make_folder(tmp_path / "a" / "b")
