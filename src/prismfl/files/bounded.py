"""Reading what others may have written: regular files only, bounded in bytes, depth and time, with one clear line."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from prismfl.errors import UserError

TEXT_LIMIT = 1_000_000
DEPTH = 32
SCALAR_LIMIT = 10_000
KEY_PARTS = 32

_YAML: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
# Strings and comments: what is left of TOML is keys, numbers and brackets. Each alternative matches once it has begun,
# so that no text is looked at twice.
_TOML_TEXT = re.compile(
    r'"""[\s\S]*?(?:"""|\Z)|' r"'''[\s\S]*?(?:'''|\Z)|" r'"(?:[^"\\\n]|\\.)*"?|' r"'[^'\n]*'?|#[^\n]*"
)


def read_regular(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; a pipe or a device is refused, not waited for.

    A symbolic link is followed: what counts is what is opened in the end.
    """
    with open_regular(path, limit=limit) as file:
        try:
            raw = file.read(limit + 1)
        except OSError as error:
            raise UserError(f"Cannot read '{path}': {error.strerror}.") from None
    if len(raw) > limit:  # it grew while it was read
        raise too_long(path, limit)
    return raw


def open_regular(path: Path, *, limit: int) -> BinaryIO:
    """A regular file of at most `limit` bytes to read from."""
    try:
        _check(path, os.stat(path), limit)  # before it is opened: opening a device may do something
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"Cannot read '{path}': {error.strerror}.") from None
    try:
        _check(path, os.fstat(handle), limit)
    except UserError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _check(path: Path, found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"Expected a regular file at {path}, got a folder, pipe, device or socket.")
    if found.st_size > limit:
        raise too_long(path, limit)


def too_long(path: Path, limit: int) -> UserError:
    """The error for a file that is longer than its limit."""
    return UserError(f"Expected at most {limit:,} bytes in {path}, got more; it is larger than the limit.")


def read_text(path: Path, *, limit: int = TEXT_LIMIT) -> str:
    """A regular file of at most `limit` bytes as UTF-8 text."""
    try:
        return read_regular(path, limit=limit).decode()
    except UnicodeDecodeError:
        raise UserError(f"'{path}' is not UTF-8 text.") from None


def load_json(raw: bytes | str, *, depth: int) -> Any:
    """JSON without second meanings: no key twice, no number that is not finite, nothing nested deeper than `depth`.

    Raises `ValueError` whose text quotes nothing.
    """
    try:
        value = json.loads(raw, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise ValueError("not readable JSON") from None
    level = [value]
    for _ in range(depth + 1):
        level = [child for part in level for child in _children(part)]
        if not level:
            return value
    raise ValueError(f"nested deeper than {depth}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def read_json(path: Path, *, limit: int = TEXT_LIMIT, depth: int = DEPTH) -> Any:
    """What a JSON file of ours holds."""
    raw = read_regular(path, limit=limit)
    try:
        return load_json(raw, depth=depth)
    except ValueError as error:
        raise UserError(f"'{path}' cannot be used: {error}.") from None


def load_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text; `where` names it in errors."""
    _check_size(text, where)
    # tomllib takes quadratic time for a key of many parts.
    if any(part.count(".") > KEY_PARTS for part in re.split(r"[=,\[\]{}\n]", _TOML_TEXT.sub("", text))):
        raise UserError(f"{where} has a key of more than {KEY_PARTS} parts.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{where} is nested too deeply.") from None
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise UserError(f"{where} is not well-formed: {_line(error)}.") from None


def load_yaml(text: str, where: str) -> object:
    """The plain value of a YAML text; `where` names it in errors.

    Anchors and aliases are refused: nine lines of them can stand for a billion words.
    """
    _check_size(text, where)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_YAML):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise UserError(f"{where} has YAML anchors or aliases, which are not allowed here; write it out.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH:
                raise UserError(f"{where} is nested too deeply.")
            if isinstance(event, yaml.ScalarEvent) and len(event.value) > SCALAR_LIMIT:
                raise UserError(f"{where} has a value of more than {SCALAR_LIMIT} characters.")
        value: object = yaml.load(text, Loader=_YAML)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: dates and numbers that cannot be
        raise UserError(f"{where} is not well-formed: {_line(error)}.") from None
    return value


def _check_size(text: str, where: str) -> None:
    if len(text) > TEXT_LIMIT:
        raise UserError(f"{where} is larger than the limit of {TEXT_LIMIT} characters.")


def _line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
