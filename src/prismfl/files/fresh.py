"""New files and folders: there when they are whole, and never in the place of another."""

from __future__ import annotations

import io
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, opener, write_atomically


@contextmanager
def new_text(path: Path) -> Iterator[TextIO]:
    """A text file to write to; it appears at the end, and not at all after an error."""
    refuse_existing([path])
    part = _part(path)
    try:
        make_folder(path.parent)
        with open(part, "xb", opener=opener) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(raw.fileno())
        _appear(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_new(files: Mapping[Path, bytes]) -> None:
    """All of the files or none."""
    refuse_existing(files)
    parts = {path: _part(path) for path in files}
    done: list[Path] = []
    try:
        for path, raw in files.items():
            write_atomically(parts[path], raw)
        for path, part in parts.items():
            _appear(part, path)
            done.append(path)
    except BaseException:
        for path in done:
            path.unlink(missing_ok=True)
        raise
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def write_folder(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """A new folder with these files in it, each by its name within the folder; whole or not at all."""
    refuse_existing([folder])
    part = _part(folder)
    try:
        make_folder(part, new=True)
        for name, raw in files:
            make_folder((part / name).parent)
            with open(part / name, "xb", opener=opener) as file:
                file.write(raw)
        part.rename(folder)
    except OSError as error:
        raise UserError(f"Cannot write '{folder}': {error.strerror}.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def refuse_existing(paths: Iterable[Path]) -> None:
    """One clear line for what is there already."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise UserError(f"'{path}' exists already; choose another with -o.")


def check_place(path: Path, *, needed: int = 0, option: str = "-o") -> None:
    """One clear line where nothing can be written at `path`, or not so many bytes: told before anything is spent.

    Nothing is left behind: the folders that would have to be made are not made yet.
    """
    there = path if path.is_dir() else next(one for one in path.absolute().parents if one.exists())
    probe = _part(there / "probe")
    try:
        with open(probe, "xb", opener=opener):
            pass
        probe.unlink()
        free = shutil.disk_usage(there).free
    except OSError as error:
        raise UserError(f"Cannot write to '{path}': {error.strerror}; choose another place with {option}.") from None
    if free < needed:
        raise UserError(
            f"About {needed / 1e6:,.0f} MB would be written to '{path}', where {free / 1e6:,.0f} MB are free; make "
            f"room, or choose another place with {option}."
        )


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _appear(part: Path, path: Path) -> None:
    try:
        os.link(part, path)  # unlike a rename, it does not replace what came meanwhile
    except FileExistsError:
        raise UserError(f"'{path}' exists already; choose another with -o.") from None
