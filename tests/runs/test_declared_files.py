"""prismfl.toml and schema.toml: what is written is what is read, together, and never over others."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.data.schema_file import read_schema
from prismfl.errors import UserError
from prismfl.privacy.guessing import OFTEN_LESS
from prismfl.runs.config import HERE, RunConfig, read
from prismfl.runs.declared_files import SCHEMA, WHY, SetUp, placed, write_set_up
from prismfl.runs.here import KEYS, checked

KEYS_OF_ONE = {"data": "t.csv", "schema_file": SCHEMA, "unit": "record", "records": 100, "method": "dp-fedavg"}
TABLE = SetUp(
    {**KEYS_OF_ONE, "epsilon": 1.0, "delta": 1e-05, "public": None},
    {
        "label": "ill",
        "classes": ["no", 'ye"s'],
        "train_size": 300,
        "columns": [{"name": "age", "type": "numeric", "min": 0, "max": 100}],
    },
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert write_set_up(TABLE, tmp_path, force=False) == [tmp_path / SCHEMA, tmp_path / HERE]
    assert checked(read(tmp_path / HERE)) | {"schema_file": SCHEMA} == {**KEYS_OF_ONE, "epsilon": 1.0, "delta": 1e-05}
    schema = read_schema(tmp_path / SCHEMA)
    assert (schema.label, schema.classes, schema.train_size) == ("ill", ("no", 'ye"s'), 300)
    assert "73.1 % of the time (a coin: 50 %)" in (tmp_path / HERE).read_text()
    assert OFTEN_LESS in (tmp_path / HERE).read_text()


def test_every_key_that_is_written_may_stand_there() -> None:
    assert set(WHY) <= KEYS & set(RunConfig.model_fields)


@pytest.mark.parametrize("name", [HERE, SCHEMA])
def test_nothing_is_overwritten_unasked_and_then_nothing_is_written(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="--force"):
        write_set_up(TABLE, tmp_path, force=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    write_set_up(TABLE, tmp_path, force=True)
    assert (tmp_path / name).read_text() != "mine"


def test_data_in_the_folder_are_named_from_it(tmp_path: Path) -> None:
    assert placed(tmp_path / "a" / "b", tmp_path) == "a/b"
    assert placed(tmp_path, tmp_path / "a") == str(tmp_path.resolve())
