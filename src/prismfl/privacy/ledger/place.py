"""Where a user's lasting ledger lies: one known place, whatever the command, the data's name or the current folder."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from prismfl.errors import UserError

VARIABLE = "PRISMFL_LEDGER"
LEDGER_FILE = "ledger.sqlite"

_MEND = f"Set {VARIABLE} to a folder of your own that lasts."


def ledger_path(*, create: bool = True) -> Path:
    """The user's ledger: in the folder that PRISMFL_LEDGER names, else in the user's data folder. The folder is made,
    for its owner alone; one that others may read is closed to them if it is ours, and refused if it is not."""
    folder = _folder()
    if create or folder.exists():
        _for_owner_alone(folder)
    return folder / LEDGER_FILE


def _folder() -> Path:
    given = os.environ.get(VARIABLE)
    if given:
        folder = Path(given).expanduser()
        if not folder.is_absolute():
            raise UserError(
                f"Expected {VARIABLE} to be an absolute path, got '{given}': it would be another ledger in each folder."
            )
        return folder
    return _data_home() / "prismfl"


def _data_home() -> Path:
    """The XDG base directory (a relative one is to be ignored), or what is customary on macOS and Windows."""
    given = Path(os.environ.get("XDG_DATA_HOME") or ".")
    if given.is_absolute():
        return given
    try:
        home = Path.home()
    except RuntimeError as error:
        raise UserError(f"No home folder to keep the ledger in. {_MEND}") from error
    if not home.is_absolute():
        raise UserError(f"The home folder '{home}' is no absolute path. {_MEND}")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    return home / ".local" / "share"


def _for_owner_alone(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        if sys.platform == "win32":
            return
        if found.st_uid != os.getuid():
            raise UserError(f"The ledger's folder '{folder}' belongs to another user. {_MEND}")
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
    except FileExistsError as error:
        raise UserError(f"The ledger's folder '{folder}' is a file. {_MEND}") from error
    except OSError as error:
        raise UserError(f"The ledger's folder '{folder}' cannot be used: {error.strerror}. {_MEND}") from error
