"""A run's synthetic set of a table is that table: its own columns, its schema beside it, readable by it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.core.payloads import SyntheticSet
from prismfl.data import Column, Schema
from prismfl.data.columns import read_columns
from prismfl.data.schema_file import read_schema
from prismfl.data.table_files import table_bytes
from prismfl.runs.synthetic_table import save_table, table_of

SCHEMA = Schema(
    (Column("height", min=100, max=220, missing=True), Column("sex", "binary", categories=("f", "m"))),
    "ill",
    ("no", "yes"),
    unit="patient",
    unit_rows=3,
)
MADE = SyntheticSet.of(
    torch.tensor([[0.0, 0.0, 1.0, 0, 1, 0], [0.0, 1.0, -1.0, 1, 0, 0], [0.5, 0.0, 1.0, 1, 0, 0]]),
    torch.tensor([1, 0, 0]),
)


def test_the_table_and_its_schema_are_written(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    save_table(MADE, tmp_path, SCHEMA, ("no", "yes"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["schema.toml", "synthetic.csv", "synthetic.parquet"]
    assert read_schema(tmp_path / "schema.toml") == SCHEMA
    table = read_columns(tmp_path / "synthetic.csv")
    assert list(table) == ["patient", "height", "sex", "ill"]
    assert table["patient"] == ["1", "1", "2"]
    assert SCHEMA.encode(table).shape == (3, 6)
    assert SCHEMA.encode(read_columns(tmp_path / "synthetic.parquet")).tolist() == SCHEMA.encode(table).tolist()


def test_the_same_set_is_the_same_table() -> None:
    first, second = (table_bytes(table_of(MADE, SCHEMA), Path("t.csv"), SCHEMA) for _ in range(2))
    assert first == second


def test_records_that_an_encoder_looked_at_are_no_table(tmp_path: Path) -> None:
    save_table(SyntheticSet.of(torch.zeros(2, 9), torch.zeros(2, dtype=torch.int64)), tmp_path, SCHEMA, ("no", "yes"))
    assert not list(tmp_path.iterdir())
