"""Labels that a program hands over: text, whole numbers or yes and no, as codes of declared classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.errors import UserError

Array = npt.NDArray[Any]
Classes = Sequence[Any] | Array | int | None
UNDECLARED = "the classes were read off the labels and count as public; declare them with classes="


@dataclass(frozen=True, eq=False)
class Labels:
    """The code of each record's class, and what the codes stand for, in order."""

    codes: torch.Tensor
    classes: Array
    text: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The classes in words."""
        return tuple(str(one) for one in self.classes.tolist())


def label_array(y: Any, count: int) -> Array:
    """One label a record: text, whole numbers or bools. Fractions are no classes, and a float hides which it is."""
    found = np.asarray(y)
    if found.dtype.kind == "O":
        found = _plain(found)
    if found.dtype.kind == "f":
        raise UserError(
            f"Unknown label type: {found.dtype}. Labels are classes: text, whole numbers or bools; give y.astype(int) "
            "if they are whole numbers."
        )
    if found.ndim != 1 or found.dtype.kind not in "biuU":
        raise UserError(
            f"Unknown label type: {found.dtype} of shape {found.shape}. Expected one label a record, as text, whole "
            "numbers or bools."
        )
    if len(found) != count:
        raise UserError(f"Expected as many labels as records, got {len(found)} and {count}.")
    return found


def numbered(y: Array, classes: Classes) -> Labels:
    """For the synthesizer: whole numbers are the places of the declared classes, from 0; text is one of them."""
    if y.dtype.kind == "U":
        return named(y, classes)
    codes = torch.from_numpy(y.astype(np.int64))
    top = int(codes.max()) if len(codes) else 0
    names = class_names(top + 1 if classes is None else classes)
    if len(codes) and not 0 <= int(codes.min()) <= top < len(names):
        raise UserError(f"Expected labels from 0 to {len(names) - 1} for {len(names)} declared classes.")
    return Labels(codes, np.array(names))


def named(y: Array, classes: Classes) -> Labels:
    """For a classifier: every label is one of the declared classes; without any, those that there are."""
    known = np.unique(y) if classes is None else _declared(classes, y)
    codes = np.searchsorted(known, y)
    right = codes < len(known)
    right[right] = known[codes[right]] == y[right]
    if not right.all():
        strange = y[~right][0].item()
        raise UserError(f"Label {strange!r} is none of the declared classes {known.tolist()}; give it in classes=.")
    return Labels(torch.from_numpy(codes.astype(np.int64)), known, known.dtype.kind == "U")


def class_names(classes: Sequence[Any] | Array | int) -> tuple[str, ...]:
    """The declared classes in words; a number of them stands for 0, 1, ..."""
    if isinstance(classes, (int, np.integer)):
        return tuple(str(i) for i in range(max(1, classes)))
    return tuple(str(one) for one in classes)


def _declared(classes: Sequence[Any] | Array | int, y: Array) -> Array:
    """The declared classes in order, of the labels' own kind: 1 and "1" are two things."""
    given = list(range(classes) if isinstance(classes, (int, np.integer)) else classes)
    if not given:
        raise UserError(f"Expected at least one class, got {classes!r}.")
    found = label_array(given, len(given))
    known = np.unique(found)
    if len(known) != len(found):
        raise UserError(f"Expected different classes, got {found.tolist()}.")
    if (known.dtype.kind == "U") != (y.dtype.kind == "U") and len(y):
        raise UserError(
            f"Label {y[0].item()!r} is none of the declared classes {known.tolist()}; text and numbers are two things."
        )
    return known


def _plain(y: Array) -> Array:
    """Objects that are all text, or all whole numbers, as an array of that."""
    flat = y.ravel().tolist()
    for kinds in ((str,), (bool, np.bool_), (int, np.integer)):
        if flat and all(isinstance(one, kinds) for one in flat):
            return np.array(flat).reshape(y.shape)
    if any(isinstance(one, float) for one in flat):
        return y.astype(np.float64) if all(isinstance(one, (int, float)) for one in flat) else y
    return y
