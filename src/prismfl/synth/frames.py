"""Frames in, frames out: a table in hand (of pandas or polars, or a mapping of columns), read by a declared schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from prismfl.core.once import Holder
from prismfl.core.records import Records
from prismfl.data.ids import unit_codes
from prismfl.data.in_memory import columns_of, found_frame
from prismfl.data.made import made_table, spare
from prismfl.data.schema import Schema, words
from prismfl.data.schema_file import parse_schema, read_schema
from prismfl.data.tables import Roles
from prismfl.rng import Key

WHERE = "the frame"


@dataclass(frozen=True)
class Framed:
    """What a frame looked like: its declared columns, their order, and what makes a frame like it."""

    schema: Schema
    order: tuple[str, ...]
    kind: type[Any]

    def drawn(self, rows: int) -> int:
        """How many records to draw so that `rows` rows come out."""
        return spare(self.schema, rows)

    def frame(self, x: torch.Tensor, y: torch.Tensor, rows: int, key: Key) -> Any:
        """Synthetic records as a frame of the same kind, its columns in the same order; ids are new numbers."""
        wanted = rows if self.schema.rows_column is not None else None
        found = made_table(self.schema, x, y, key=key, rows=wanted)
        columns = {name: found[name] for name in self.order}
        return columns if issubclass(self.kind, Mapping) else self.kind(columns)


def schema_of(given: Schema | Mapping[str, Any] | str | Path) -> Schema:
    """A declared schema: itself, its content as a dict, or a file."""
    if isinstance(given, Schema):
        return given
    return parse_schema(given, where="the schema") if isinstance(given, Mapping) else read_schema(given)


def is_frame(given: Any) -> bool:
    """Whether it has named columns."""
    return isinstance(given, Mapping) or hasattr(given, "columns")


def read_frame(frame: Any, schema: Schema, *, name: str | None) -> tuple[Holder, Framed]:
    """The records of a frame with their prints, and what it looked like."""
    columns = columns_of(frame, WHERE)
    roles = Roles(label=schema.label, unit=schema.unit)
    found = found_frame(columns, WHERE, roles=roles, classes=None, schema=schema)
    unit = None if found.unit is None else torch.from_numpy(unit_codes(found.unit, schema.unit or "unit"))
    records = Records(torch.from_numpy(found.x), torch.from_numpy(found.y), unit)
    prints = [one for part in (found.prints, *found.more) for one in part]
    known = {*schema.names, schema.label, *schema.ids, *([schema.unit] if schema.unit else [])}
    return Holder(records, prints, name), Framed(schema, tuple(c for c in columns if c in known), type(frame))


def own_settings(method: str, schema: Schema) -> dict[str, Any]:
    """What a method for tables is told of the columns."""
    return {
        "columns": words(schema),
        **({"names": tuple(c.name for c in schema.encoded)} if method == "dp-marginals" else {}),
    }
