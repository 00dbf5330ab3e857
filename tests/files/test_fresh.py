"""New files and folders: whole or not there, and nothing is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.files.fresh import new_text, write_folder, write_new


def test_a_text_appears_when_it_is_whole(tmp_path: Path) -> None:
    with new_text(tmp_path / "deep" / "a.csv") as file:
        file.write("één\n")
        assert not (tmp_path / "deep" / "a.csv").exists()
    assert (tmp_path / "deep" / "a.csv").read_bytes() == "één\n".encode()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.csv"]


def test_after_an_error_there_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_text(tmp_path / "a.csv") as file:
        file.write(f"half {1 / 0}")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_replaced_not_even_what_came_meanwhile(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    with pytest.raises(UserError, match="exists already"), new_text(place):
        place.write_text("theirs")
    assert place.read_text() == "theirs"
    with pytest.raises(UserError, match="exists already"):
        write_new({tmp_path / "b": b"", place: b"mine"})
    with pytest.raises(UserError, match="exists already"):
        write_folder(place, [("x", b"")])
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="exists already"), new_text(tmp_path / "link"):
        pass


def test_files_come_together(tmp_path: Path) -> None:
    write_new({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"1", "b": b"2"}


def test_a_folder_that_fails_is_not_there(tmp_path: Path) -> None:
    def files() -> Iterator[tuple[str, bytes]]:
        yield "in/a", b"1"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_folder(tmp_path / "new", files())
    assert list(tmp_path.iterdir()) == []
    write_folder(tmp_path / "new", [("in/a", b"1")])
    assert (tmp_path / "new" / "in" / "a").read_bytes() == b"1"
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write"):
        write_folder(tmp_path / "file" / "new", [("a", b"")])
