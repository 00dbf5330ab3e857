"""Files that are whole or absent, never half written, and as closed to others as the folder they lie in.

Whoever makes a folder decides who may look: a site's is 0700. What is made below a closed folder is closed from its
first moment, whatever the umask; elsewhere the umask decides, as for any file.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

OTHERS = 0o077


def write_atomically(path: Path, raw: bytes) -> None:
    """All of the file or nothing: written beside, flushed to disk, then renamed."""
    make_folder(path.parent)
    # A name of its own: two processes that write the same file must not rename each other's half.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb", opener=opener) as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def opener(path: str, flags: int) -> int:
    """For `open(..., opener=opener)`: a new file is as closed as its folder."""
    return os.open(path, flags, 0o666 & _mask(Path(path).parent))


def make_folder(path: Path, *, closed: bool = False, new: bool = False) -> None:
    """The folder with its missing parents, as closed as the first of them that exists; or `closed` itself.

    A `new` one must not exist yet.
    """
    if path.is_dir() and not new:
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700 if closed else 0o777 & _mask(path.parent), exist_ok=not new)


def _mask(folder: Path) -> int:
    return 0o777 if folder.stat().st_mode & OTHERS else 0o700
