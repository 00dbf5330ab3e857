"""A site's folder is closed to others: 0700, its files 0600. Its log holds one printable line for each entry."""

from __future__ import annotations

import io
import logging
import os
import stat
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from prismfl.errors import UserError
from prismfl.files.atomic import OTHERS, opener

FILE = "site.toml"
# What a site makes by itself. Other files in its folder are its operator's; closing the folder hides them as well.
FOLDERS = ("data", "keys", "peers", "bin", "flower", "runs", "outbox", "servers")
OWN = (FILE, "state.json", *FOLDERS, "egress*", "ledger*", "site.*", "supernode.log")
LOG_BYTES = 1_000_000
LINE = 2_000


def close_site(folder: Path) -> str | None:
    """Close a site's folder to others where an earlier version or a copy left it open; one line if it was."""
    if not (folder / FILE).is_file():
        return None
    changed = sum([_close(path) for path in (folder.resolve(), *_own(folder))])
    return f"others could look into '{folder}': {changed} files and folders are now closed to them" if changed else None


def _own(folder: Path) -> Iterator[Path]:
    for top in (path for pattern in OWN for path in folder.glob(pattern) if not path.is_symlink()):
        yield top
        for place, folders, files in os.walk(top):
            yield from (Path(place) / name for name in folders + files)


def _close(path: Path) -> bool:
    """A link inside is left alone: what it points to need not be the site's."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    except FileNotFoundError:  # another process has renamed or removed it
        return False
    except PermissionError:
        raise UserError(f"Others can look into '{path}', which belongs to another user: chmod -R go= it.") from None
    return True


class SiteLog(RotatingFileHandler):
    """Each new file of the rotation is as closed as the site's folder."""

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open(self.baseFilename, "ab", opener=opener), encoding="utf-8", line_buffering=True)


class OneLine(logging.Formatter):
    """No line break and no control character, which a server could put into a name; never a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one printable line."""
        record.exc_info, record.exc_text, record.stack_info = None, None, None
        return printable(super().format(record))


def printable(line: str) -> str:
    """The line, cut to `LINE` characters, with a space for each that cannot be printed."""
    return "".join(c if c.isprintable() else " " for c in line[:LINE])
