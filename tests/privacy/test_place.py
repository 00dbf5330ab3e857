"""The one place of a user's ledger: where it is, and who may look into it."""

import os
import stat
import sys
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy.ledger.place import ledger_path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRISMFL_LEDGER", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_the_named_folder_is_made_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "books"
    monkeypatch.setenv("PRISMFL_LEDGER", str(folder))
    assert ledger_path(create=False) == folder / "ledger.sqlite"
    assert not folder.exists()
    old = os.umask(0)
    try:
        assert ledger_path() == folder / "ledger.sqlite"
    finally:
        os.umask(old)
    assert mode(folder) == 0o700
    assert not (folder / "ledger.sqlite").exists()


@pytest.mark.parametrize("create", [True, False])
def test_a_folder_that_others_may_read_is_closed_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    folder.chmod(0o755)
    monkeypatch.setenv("PRISMFL_LEDGER", str(folder))
    ledger_path(create=create)
    assert mode(folder) == 0o700


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:
        os.chown(tmp_path, 12345, -1)
        folder = tmp_path
    else:
        folder = Path("/")
    before = mode(folder)
    monkeypatch.setenv("PRISMFL_LEDGER", str(folder))
    with pytest.raises(UserError, match=r"belongs to another user\. Set PRISMFL_LEDGER"):
        ledger_path()
    assert mode(folder) == before


def test_a_file_in_its_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "books").touch()
    for given in (tmp_path / "books", tmp_path / "books" / "below"):
        monkeypatch.setenv("PRISMFL_LEDGER", str(given))
        with pytest.raises(UserError, match=r"is a file|Not a directory"):
            ledger_path()


@pytest.mark.parametrize("given", ["ledgers", "./ledgers", "../ledgers", "."])
def test_the_place_does_not_follow_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRISMFL_LEDGER", given)
    with pytest.raises(UserError, match="absolute path"):
        ledger_path()
    monkeypatch.delenv("PRISMFL_LEDGER")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", given)
    monkeypatch.setattr(sys, "platform", "linux")
    assert ledger_path(create=False) == Path("/home/somebody/.local/share/prismfl/ledger.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_the_user_s_data_folder_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    where = {"linux": ".local/share", "darwin": "Library/Application Support"}
    for platform, below in where.items():
        monkeypatch.setattr(sys, "platform", platform)
        assert ledger_path(create=False) == Path("/home/somebody") / below / "prismfl" / "ledger.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert ledger_path(create=False) == Path("/srv/data/prismfl/ledger.sqlite")


def test_no_home_and_no_named_folder_is_an_error_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", staticmethod(homeless))
    with pytest.raises(UserError, match=r"No home folder.*PRISMFL_LEDGER"):
        ledger_path()


def test_a_relative_home_would_be_another_ledger_in_each_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "somewhere")
    with pytest.raises(UserError, match="no absolute path"):
        ledger_path()


def test_windows_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert ledger_path() == tmp_path / "local" / "prismfl" / "ledger.sqlite"
    monkeypatch.delenv("LOCALAPPDATA")
    assert ledger_path(create=False) == tmp_path / "AppData" / "Local" / "prismfl" / "ledger.sqlite"
