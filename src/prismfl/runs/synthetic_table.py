"""A run's synthetic set of a table as that table: CSV and Parquet in its own columns, with its schema beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prismfl.core.payloads import SyntheticSet
from prismfl.data.constraints import Cells
from prismfl.data.made import made_table
from prismfl.data.schema import Schema
from prismfl.data.schema_file import schema_toml
from prismfl.data.table_files import has_parquet, table_bytes
from prismfl.files.atomic import write_atomically
from prismfl.rng import Key

NAME = "synthetic"
SCHEMA = "schema.toml"


def table_of(made: SyntheticSet, schema: Schema) -> Cells:
    """The set's records in their declared columns, the label among them; always the same table of the same set."""
    return made_table(schema, made.x, made.hard_y, key=Key.seed(0))


def save_table(made: SyntheticSet, folder: Path, schema: Schema, classes: tuple[str, ...]) -> None:
    """Writes synthetic.csv, synthetic.parquet where that can be written, and schema.toml."""
    if tuple(made.x.shape[1:]) != (schema.width,):
        return  # not of these columns: a public encoder looked at the records
    schema = replace(schema, classes=classes)
    cells = table_of(made, schema)
    for suffix in (".csv", *((".parquet",) if has_parquet() else ())):
        path = folder / f"{NAME}{suffix}"
        write_atomically(path, table_bytes(cells, path, schema))
    write_atomically(folder / SCHEMA, schema_toml(schema).encode())
