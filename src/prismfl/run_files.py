"""The files of a run folder, read within bounds. A folder may come from anybody: a pipe is not waited for, a link that
leads out of it is not followed, and neither size nor depth can use up the reader."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from prismfl.errors import UserError

MOST_JSON_BYTES = 16 * 2**20
MOST_LINE_BYTES = 256 * 2**20
MOST_DEPTH = 32


def read_bytes(folder: Path, name: str, *, most: int) -> bytes:
    """A regular file at or below `folder`, whole. FileNotFoundError where there is none; else one clear line."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        place = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) if inside else None
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that cannot be, a file of somebody else
        raise UserError(f"'{path}' cannot be opened.") from None
    if place is None:
        raise UserError(f"'{path}' leads out of its run folder; it is not read.")
    with os.fdopen(place, "rb") as file:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"'{path}' is not a regular file.")
        raw = file.read(most + 1) if found.st_size <= most else None
    if raw is None or len(raw) > most:
        raise UserError(f"'{path}' has {found.st_size} bytes; at most {most} are read.")
    return raw


def parse(raw: bytes | str, where: object) -> Any:
    """JSON with finite numbers, at most `MOST_DEPTH` deep."""
    try:
        value = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise UserError(f"'{where}' is nested more than {MOST_DEPTH} deep.") from None
    except ValueError:
        raise UserError(f"'{where}' is not readable JSON.") from None
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise UserError(f"'{where}' is nested more than {MOST_DEPTH} deep.")
        below = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, (dict, list))]
        level = [v for part in below for v in part]
    return value


def read_json(folder: Path, name: str) -> Any:
    return parse(read_bytes(folder, name, most=MOST_JSON_BYTES), folder / name)


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)
