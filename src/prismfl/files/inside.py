"""The files of a run folder, read within bounds. A folder may come from anybody: a link that leads out of it is not
followed, and what `files` refuses (pipes, devices, endless or deeply nested content) is refused here as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.files.bounded import load_json, read_regular

MOST_JSON_BYTES = 16 * 2**20
MOST_LINE_BYTES = 256 * 2**20
MOST_DEPTH = 32


def read_bytes(folder: Path, name: str, *, most: int) -> bytes:
    """A regular file at or below `folder`, whole. FileNotFoundError where there is none; else one clear line."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        exists = path.exists()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that cannot be
        raise UserError(f"'{path}' cannot be opened.") from None
    if not inside:
        raise UserError(f"'{path}' is not a regular file of its run: it lies outside the run's folder.")
    if not exists:
        raise FileNotFoundError(path)
    return read_regular(path, limit=most)


def parse(raw: bytes | str, where: object) -> Any:
    """JSON with finite numbers, at most `MOST_DEPTH` deep."""
    try:
        return load_json(raw, depth=MOST_DEPTH)
    except ValueError as error:
        raise UserError(f"'{where}' cannot be used: {error}.") from None


def read_json(folder: Path, name: str) -> Any:
    """What a JSON file at or below `folder` holds, bounded in length and depth."""
    return parse(read_bytes(folder, name, most=MOST_JSON_BYTES), folder / name)
