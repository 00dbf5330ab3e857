"""Tables as files: a missing value is an empty cell or a null, and a cell is nothing but data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismfl.data import Column, Schema
from prismfl.data.cells import instant
from prismfl.data.columns import read_columns
from prismfl.data.table_files import can_write, table_bytes
from prismfl.errors import UserError

FORMULAS = ("=1+1", "@SUM(A1)", "+49", "-x", "a,b", 'say "no"', "two\nlines", "\u202egnp.exe")
SCHEMA = Schema(
    columns=(
        Column("height", min=100, max=220, decimals=1, missing=True),
        Column("visits", min=0, max=9, integer=True, missing=True),
        Column("=ward", type="categorical", categories=FORMULAS, missing=True),
        Column("day", type="date", min=instant("2020-01-01"), max=instant("2020-12-31"), missing=True),
    ),
    label="ill",
    classes=("0", "1"),
)
CELLS = {
    "height": ["160.5", *[""] * 8],
    "visits": ["3", *["NA"] * 8],
    "=ward": [*FORMULAS, ""],
    "day": ["2020-02-29", *[""] * 8],
}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_cells_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    made = SCHEMA.decode(SCHEMA.encode(CELLS))
    (tmp_path / name).write_bytes(table_bytes(made, tmp_path / name, SCHEMA))
    again = read_columns(tmp_path / name)
    assert list(again) == list(CELLS)
    back = SCHEMA.decode(SCHEMA.encode(again))
    for column in CELLS:
        assert back[column].tolist() == pytest.approx(made[column].tolist(), nan_ok=True)
    assert back["=ward"].tolist() == [*FORMULAS, None]


def test_what_is_missing_is_an_empty_cell() -> None:
    lines = table_bytes(SCHEMA.decode(SCHEMA.encode(CELLS)), Path("t.csv"), SCHEMA).decode().splitlines()
    assert lines[:3] == ["height,visits,=ward,day", "160.5,3,=1+1,2020-02-29", ",,@SUM(A1),"]
    assert lines[-1] == ",,,"


def test_what_is_missing_is_a_null_and_a_date_a_date() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import io

    raw = table_bytes(SCHEMA.decode(SCHEMA.encode(CELLS)), Path("t.parquet"), SCHEMA)
    found = parquet.read_table(io.BytesIO(raw))
    assert [str(t) for t in found.schema.types] == ["double", "int64", "string", "date32[day]"]
    assert [column.null_count for column in found.columns] == [8, 8, 1, 8]


def test_a_decimal_comma_is_written_as_one() -> None:
    schema = Schema((Column("cost", min=0, max=100, decimal=",", decimals=2),), "ill", ("0", "1"))
    made = {"cost": np.array([1.5, 20.25]), "n": np.array([1, 2])}
    assert table_bytes(made, Path("t.csv"), schema) == b"cost;n\n1,5;1\n20,25;2\n"


def test_other_files_are_refused() -> None:
    with pytest.raises(UserError, match=r"^Expected a \.csv or \.parquet file as --out, got t\.xlsx\.$"):
        can_write(Path("t.xlsx"))
