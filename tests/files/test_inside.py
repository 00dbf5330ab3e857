"""Files of a run folder: what lies inside is read, what leads out is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.files.inside import parse, read_bytes, read_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "a.json").write_text('{"x": [1, 2.5]}')
    (tmp_path / "run" / "deep" / "b").write_bytes(b"123")
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "run"


def refused(folder: Path, name: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        read_bytes(folder, name, most=10)
    assert str(error.value) == line


def test_files_at_and_below_the_folder_are_read(folder: Path) -> None:
    assert read_json(folder, "a.json") == {"x": [1, 2.5]}
    assert read_bytes(folder, "deep/b", most=3) == b"123"


def test_a_link_that_stays_inside_is_followed(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "deep" / "b")
    assert read_bytes(folder, "link", most=3) == b"123"


@pytest.mark.parametrize("name", ["../secret", "deep/../../secret"])
def test_a_name_that_leads_out_is_refused(name: str, folder: Path) -> None:
    line = f"'{folder / name}' is not a regular file of its run: it lies outside the run's folder."
    refused(folder, name, line)


def test_a_link_that_leads_out_is_refused(folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    line = f"'{folder / 'link'}' is not a regular file of its run: it lies outside the run's folder."
    refused(folder, "link", line)


def test_an_absolute_name_is_refused(folder: Path) -> None:
    name = str(folder.parent / "secret")
    refused(folder, name, f"'{name}' is not a regular file of its run: it lies outside the run's folder.")


def test_a_link_to_itself_and_a_name_that_cannot_be_are_refused(folder: Path) -> None:
    (folder / "loop").symlink_to(folder / "loop")
    refused(folder, "loop", f"'{folder / 'loop'}' cannot be opened.")
    refused(folder, "a\0b", f"'{folder}/a\0b' cannot be opened.")


def test_too_much_is_refused(folder: Path) -> None:
    (folder / "long").write_bytes(bytes(11))
    refused(folder, "long", f"Expected at most 10 bytes in {folder / 'long'}, got more; it is larger than the limit.")


def test_what_is_not_there_is_said_to_the_caller(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(folder, "none", most=10)


def test_json_that_cannot_be_used_names_its_place() -> None:
    with pytest.raises(UserError, match=r"^'here' cannot be used: nested deeper than 32\.$"):
        parse("[" * 40 + "]" * 40, "here")
