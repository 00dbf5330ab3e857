"""The format of a folder that lasts: a number in `state.json`, so that a version that cannot read it says so."""

from __future__ import annotations

import json
from pathlib import Path

from prismfl.errors import UserError
from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import read_json
from prismfl.version import __version__

FILE = "state.json"
BEFORE = 1
"""Folders of versions that wrote no number are in this format."""


def begin(folder: Path, schema: int) -> None:
    """Write down in which format a folder is; one that says so already is checked."""
    if (folder / FILE).exists():
        check(folder, schema)
        return
    write_atomically(folder / FILE, json.dumps({"schema": schema, "prismfl": __version__}).encode() + b"\n")


def check(folder: Path, schema: int) -> None:
    """Refuse a folder in a format that this version does not read, in one line."""
    told = read_json(folder / FILE) if (folder / FILE).exists() else {"schema": BEFORE}
    found = told.get("schema") if isinstance(told, dict) else None
    if type(found) is not int or found != schema:
        by = f" by prismfl {told.get('prismfl')!s:.20}" if isinstance(told, dict) else ""
        raise UserError(
            f"'{folder}' was written{by} in format {found!s:.20}, prismfl {__version__} reads {schema}: use the "
            "version that wrote it, or a newer one."
        )
