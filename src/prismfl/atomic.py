"""Files that are whole or absent, never half written."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, raw: bytes) -> None:
    """All of the file or nothing: written beside, flushed to disk, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
