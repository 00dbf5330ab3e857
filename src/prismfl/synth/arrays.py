"""Arrays that a program hands over: images or an encoded table, labels and ids, checked before anything is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.core.records import Records
from prismfl.data.ids import unit_codes
from prismfl.data.prints import matrix_prints, picture_print, vector_prints
from prismfl.errors import UserError
from prismfl.synth.labels import Labels, label_array

Array = npt.NDArray[Any]
Code = Callable[[Array], Labels]


def read_arrays(X: Any, y: Any, unit: Any, *, code: Code) -> tuple[Records, list[bytes], Labels]:
    """Images (n, h, w) or (n, c, h, w), or a table (n, columns), as records, their prints and the classes.

    `code` says which class a label is. Without labels there is one class.
    """
    array = np.asarray(X)
    if array.dtype.kind not in "biuf":
        raise UserError(f"Expected an array of numbers, got {array.dtype}; `prismfl synth` reads files.")
    x = images_of(array) if array.ndim > 2 else _table(array)
    labels = code(np.zeros(len(x), np.int64) if y is None else label_array(y, len(x)))
    own = prints_of(x.numpy() if array.ndim > 2 else array)
    return Records(x, labels.codes, None if unit is None else units_of(unit, len(x))), own, labels


def prints_of(x: Array) -> list[bytes]:
    """What the ledger knows the records of an array by."""
    if x.ndim == 2:
        return vector_prints(x) + matrix_prints(x)
    return [picture_print(image) for image in x]


def images_of(array: Array) -> torch.Tensor:
    """Images as (n, channels, h, w) in [0, 1]."""
    array = array[:, None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        raise UserError(f"Expected images as (n, h, w) or (n, channels, h, w) with 1 or 3 channels, got {array.shape}.")
    if array.dtype == np.uint8:
        return torch.tensor(array)
    x = torch.tensor(array, dtype=torch.float32)
    if len(x) and not (float(x.min()) >= 0.0 and float(x.max()) <= 1.0):
        raise UserError("Expected image values as bytes or in [0, 1].")
    return x


def _table(array: Array) -> torch.Tensor:
    if array.ndim != 2:
        raise UserError(f"Expected images or a table (n, columns), got an array of shape {array.shape}.")
    x = torch.tensor(array, dtype=torch.float32)
    if not bool(x.isfinite().all()):
        raise UserError("Expected finite numbers in every cell of the table.")
    return x


def units_of(unit: Any, count: int) -> torch.Tensor:
    """The code of each record's person; ids are text or whole numbers, the same in every fit."""
    ids = np.asarray(unit) if hasattr(unit, "dtype") else list(unit)
    if np.shape(ids) != (count,):
        raise UserError(f"Expected one id a record as unit, got shape {np.shape(ids)} for {count} records.")
    return torch.from_numpy(unit_codes(ids, "unit"))
