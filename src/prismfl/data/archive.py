"""The arrays of an npz file, each size checked against its header before a byte of it is made room for."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from prismfl.errors import UserError
from prismfl.files.bounded import open_regular

Array = npt.NDArray[Any]
T = TypeVar("T")

LIMIT = 8 * 2**30  # bytes, of the file and of all that it unpacks to
MEMBERS = 1000
_DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    AttributeError,
    RuntimeError,  # an encrypted member, and with NotImplementedError an unknown compression
    SyntaxError,
    TypeError,
)


def read_members(path: Path, *, limit: int = LIMIT) -> dict[str, Array]:
    """Every plain array of an archive by its name."""
    return _each(path, limit, _array)


def read_forms(path: Path, *, limit: int = LIMIT) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """The shape and type of every array of an archive, from their headers: no value is read."""
    return _each(path, limit, _form)


def _each(path: Path, limit: int, take: Callable[[zipfile.ZipFile, zipfile.ZipInfo], T]) -> dict[str, T]:
    with open_regular(path, limit=limit) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                _check_members(archive.infolist(), path, limit)
                return {info.filename[:-4]: take(archive, info) for info in archive.infolist()}
        except UserError:
            raise
        except MemoryError:
            raise UserError(f"Not enough memory for the arrays of {path}; give a smaller file (--data).") from None
        except _DAMAGED as error:
            raise UserError(f"Cannot read {path} as npz of plain arrays: {' '.join(str(error).split())}.") from None


def _check_members(members: list[zipfile.ZipInfo], path: Path, limit: int) -> None:
    if len(members) > MEMBERS:
        raise UserError(f"Expected at most {MEMBERS} arrays in {path}, got {len(members)}.")
    if len({info.filename for info in members}) != len(members):
        raise UserError(f"Expected each array once in {path}, got a name twice.")
    for info in members:
        if info.is_dir() or not info.filename.endswith(".npy"):
            raise UserError(f"Expected nothing but arrays (.npy) in {path}, got '{info.filename[:40]}'.")
    total = sum(info.file_size for info in members)
    if total > limit:
        raise UserError(f"Expected at most {limit:,} bytes of arrays in {path}, got {total:,}.")


def _form(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with archive.open(info) as member:
        shape, dtype = _header(member)
        if dtype.hasobject or dtype.itemsize == 0:
            raise ValueError(f"'{info.filename}' holds {dtype}, not plain numbers or text")
        # Python's own whole numbers: a product of a lying shape must not wrap around.
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
            raise ValueError(f"the header of '{info.filename}' declares more than the file holds")
    return shape, dtype


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    _form(archive, info)
    with archive.open(info) as member:
        found: Array = np.lib.format.read_array(member, allow_pickle=False)
        return found


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"array format {version[0]}.{version[1]} is unknown")
    return shape, dtype
