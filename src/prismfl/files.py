"""Opening files that somebody else may have put there: only regular files, and only up to a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from prismfl.errors import UserError


def open_regular(path: Path, *, limit: int) -> BinaryIO:
    """A file to read from. A pipe, device or socket is refused without waiting for it, and so is a longer file."""
    try:
        # A plain open() of a pipe would wait for a writer, perhaps for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise UserError(f"Expected a regular file at {path}, got a folder, pipe, device or socket.")
    if found.st_size > limit:
        os.close(descriptor)
        raise too_long(path, limit)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes, also where it grows while it is read."""
    with open_regular(path, limit=limit) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    if len(content) > limit:
        raise too_long(path, limit)
    return content


def too_long(path: Path, limit: int) -> UserError:
    return UserError(f"Expected at most {limit:,} bytes in {path}, got more.")
