"""What a data set is: a public declaration (`Spec`) and the records behind it (`Dataset`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import torch

    from prismfl.data.faults import BadRecord
    from prismfl.data.parts import Parts
    from prismfl.data.schema import Schema

Kind = Literal["image", "table", "text", "patient"]


@dataclass(frozen=True)
class Spec:
    """Everything about a data set that is public. Nothing in here is computed from private records.

    `shape` is (channels, height, width) for images and (features,) for tables. A text, or a record of several parts
    (a patient's picture, text and row), is a row of bytes, and `parts` says what lies where in it. `unit` is the column
    that names whom the promise protects (a patient, say), where the schema or the config declares one.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    train_size: int
    licence: str
    source: str
    unit: str | None = None
    parts: Parts | None = None


@dataclass(frozen=True, eq=False, repr=False)  # no record in a traceback
class Dataset:
    """Records ready for training: float32 features, int64 labels, split into a training and a test part.

    Images are NCHW in [0, 1], or bytes that stand for it where the files have 8 bits: whoever computes makes floats of
    those it is at (`core.records.as_floats`). Rows of parts are bytes as well. Tables lie in [-1, 1] with one-hot
    categories. `unit_train` holds an
    integer per training record that follows from the id of its privacy unit (a patient, say) alone; None means that
    every record is its own unit. `natural_train` is the id column that the split `natural` groups by, where the data
    has one. `prints_train` says what each record of own data is, whatever file it came in; it stays on the site, and so
    does `left_out`, the number of training records that could not be read, with where the first of them lie; where a
    public encoder looked at the training records, `pictures` are those from before: they decide who a record is.
    """

    spec: Spec
    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    unit_train: np.ndarray | None = None
    natural_train: np.ndarray | None = None
    schema: Schema | None = None
    notices: tuple[str, ...] = ()
    prints_train: list[bytes] | None = None
    left_out: int = 0
    faults: tuple[BadRecord, ...] = ()
    more_prints: tuple[bytes, ...] = ()
    pictures: torch.Tensor | None = None

    @property
    def identity(self) -> list[bytes] | None:
        """What decides the site of each training record of own data: its unit, or the record itself."""
        if self.unit_train is not None:
            return [int(code).to_bytes(8, "little") for code in self.unit_train]
        if self.prints_train is None:
            return None
        labels = self.y_train.tolist()
        return [content + int(label).to_bytes(4, "little") for content, label in zip(self.prints_train, labels)]
