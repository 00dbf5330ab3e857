"""A record of several parts about one person (a picture, a text, a row of a table) as one row of bytes.

The declaration is public and says where each part lies. A pixel is a byte, a text its bytes, a column's number v in
[-1, 1] the byte 128 + 127 v. A part that a record lacks is a value: its bytes are all zero. So whatever carries rows
(the door, splits, ledgers, workers, the wire) carries such records too. A text alone is a record of one part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prismfl.data.concepts import Concept, vocabulary
from prismfl.data.schema import Schema
from prismfl.data.texts import LEAST, MOST, Bytes, bytes_text
from prismfl.errors import UserError

PartKind = Literal["image", "text", "table"]
KINDS: tuple[PartKind, ...] = ("image", "text", "table")
MOST_SIDE = 256
MIDDLE, REACH = 128, 127  # the bytes of a column's 0, and from there to 1


@dataclass(frozen=True)
class RecordPart:
    """One part: its name, its kind and its shape, (c, h, w), (bytes,) or (features,).

    A text has a language and the name of the vocabulary of concepts that it is read by.
    """

    name: str
    kind: PartKind
    shape: tuple[int, ...]
    language: str = ""
    concepts: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"Expected a part in the schema that is {', '.join(KINDS)}, got '{self.kind}'.")
        sides = self.shape
        if self.kind == "image" and not (len(sides) == 3 and sides[0] in (1, 3) and min(sides[1:]) >= 8):
            raise UserError(f"Expected 1 or 3 channels and at least 8 pixels a side in the schema, got {sides}.")
        if self.kind == "image" and max(sides[1:]) > MOST_SIDE:
            raise UserError(f"Expected at most {MOST_SIDE} pixels a side of the image in the schema, got {sides}.")
        if self.kind == "text" and not (len(sides) == 1 and LEAST <= sides[0] <= MOST):
            raise UserError(f"Expected {LEAST} to {MOST:,} bytes of text in the schema, got {sides}.")
        vocabulary(self.concepts)

    @property
    def width(self) -> int:
        """Bytes in a record's row."""
        return math.prod(self.shape)

    @property
    def vocabulary(self) -> tuple[Concept, ...]:
        """The declared concepts that a text is read by; none for other parts."""
        return vocabulary(self.concepts)


@dataclass(frozen=True)
class Parts:
    """The parts of a record, in their order; `schema` declares the columns of the table among them."""

    parts: tuple[RecordPart, ...]
    schema: Schema | None = None

    def __post_init__(self) -> None:
        kinds = [part.kind for part in self.parts]
        if not kinds or len(set(kinds)) != len(kinds):
            raise UserError(f"Expected at most one image, one text and one table in the schema, got {kinds}.")
        table = self.find("table")
        if (table is None) != (self.schema is None) or (
            table is not None and self.schema is not None and table.shape != (self.schema.width,)
        ):
            raise UserError("The table of a record and the columns in the schema do not belong together.")

    def __iter__(self) -> Iterator[RecordPart]:
        return iter(self.parts)

    @property
    def width(self) -> int:
        """Bytes in a row."""
        return sum(part.width for part in self.parts)

    @property
    def kind(self) -> Literal["text", "patient"]:
        """What a record of these parts is."""
        return "text" if [part.kind for part in self.parts] == ["text"] else "patient"

    def find(self, kind: PartKind) -> RecordPart | None:
        """The part of a kind, None where there is none."""
        return next((part for part in self.parts if part.kind == kind), None)

    def place(self, kind: PartKind) -> slice:
        """Where the part of a kind lies in a row."""
        start = 0
        for part in self.parts:
            if part.kind == kind:
                return slice(start, start + part.width)
            start += part.width
        raise KeyError(kind)

    def joined(self, given: Mapping[str, npt.NDArray[Any]]) -> Bytes:
        """Rows from the bytes of each part by its kind; a part that is not given is missing in all of them."""
        count = len(next(iter(given.values())))
        rows = np.zeros((count, self.width), dtype=np.uint8)
        for kind, cells in given.items():
            rows[:, self.place(kind)] = cells.reshape(count, -1)  # type: ignore[arg-type]
        return rows

    def texts(self, rows: Bytes) -> list[str]:
        """The text of each row; empty where a record has none."""
        return [bytes_text(row) for row in rows[:, self.place("text")]]

    def images(self, rows: Bytes) -> Bytes:
        """The picture of each row as bytes (n, c, h, w)."""
        part = self.find("image")
        assert part is not None
        return rows[:, self.place("image")].reshape(-1, *part.shape)


def column_bytes(features: npt.NDArray[Any]) -> Bytes:
    """Encoded columns in [-1, 1] as bytes."""
    found: Bytes = np.round(MIDDLE + REACH * np.clip(np.nan_to_num(features), -1, 1)).astype(np.uint8)
    return found


def byte_columns(cells: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Bytes of columns as numbers in [-1, 1]."""
    found: npt.NDArray[np.float32] = np.clip((cells.astype(np.float32) - MIDDLE) / REACH, -1, 1)
    return found
