"""What a reader has found: no record of it in a traceback, and faults of its own."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.data.found import TABLES, Found


def found() -> Found:
    return Found("table", np.full((1, 1), 0.125, dtype=np.float32), np.array([0]), ("a", "b"), [b"secret"])


def test_no_record_is_in_what_a_traceback_shows() -> None:
    assert "0.125" not in repr(found())
    assert "secret" not in repr(found())


def test_two_readings_do_not_share_their_faults() -> None:
    one, two = found(), found()
    one.faults.rows.add(3)
    assert two.faults.rows == set()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.pq"])
def test_files_that_are_tables(name: str) -> None:
    assert name.endswith(TABLES)


@pytest.mark.parametrize("name", ["t.npz", "t.json", "t.gz", "csv"])
def test_files_that_are_not(name: str) -> None:
    assert not name.endswith(TABLES)
