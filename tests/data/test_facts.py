"""`plan` says what a run costs from declared facts: not one file of records is opened for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismfl.data.facts import declared_facts
from prismfl.errors import UserError
from prismfl.runs import planning, records, simulate
from prismfl.runs.config import RunConfig
from tests.laws.test_neighbours import CLASSES, WRITERS, some_rows

OPENED: list[str] = []
WATCHING: list[bool] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if WATCHING and event == "open":
        OPENED.append(str(arguments[0]))


sys.addaudithook(_hear)  # sees each open() and os.open(), and cannot be taken off again


def opened_by(work: Callable[[], object]) -> list[str]:
    OPENED.clear()
    WATCHING.append(True)
    try:
        work()
    finally:
        WATCHING.clear()
    return list(OPENED)


def own(tmp_path: Path, reader: str, **changes: Any) -> RunConfig:
    tmp_path.mkdir(exist_ok=True)
    path = WRITERS[reader](tmp_path, some_rows())
    table = reader in ("csv", "parquet")
    declared = {"schema_file": str(tmp_path / "schema.toml")} if table else {"image_size": 8, "channels": 1}
    settings = {"rounds": 1, "steps": 1, "batch": 8}
    base: dict[str, Any] = {"method": "dp-fedavg", "model": "mlp:8", "epsilon": 2.0, "records": 20, "sites": 2}
    return RunConfig(data=str(path), classes=list(CLASSES), settings=settings, **{**base, **declared, **changes})


@pytest.mark.parametrize("reader", WRITERS)
def test_plan_opens_no_record_and_says_what_the_run_costs(reader: str, tmp_path: Path) -> None:
    config = own(tmp_path / "data", reader, out=str(tmp_path / "run"))
    planned: list[planning.Plan] = []
    planning.plan(config)  # imports, which open files of their own
    opened = opened_by(lambda: planned.append(planning.plan(config)))
    assert not [name for name in opened if name.startswith(str(tmp_path)) and not name.endswith("schema.toml")]
    read = opened_by(lambda: records.read_data(config))
    assert [name for name in read if name.startswith(str(tmp_path))], "the watch must see a record that is read"
    assert simulate.run(config).epsilon == pytest.approx(planned[0].epsilon)
    told, found = planning.declared_spec(config), records.read_data(config).spec
    assert (told.name, told.kind, told.shape, told.classes) == (found.name, found.kind, found.shape, found.classes)


def test_folder_names_declare_the_classes(tmp_path: Path) -> None:
    config = own(tmp_path, "folder")
    assert declared_facts(config.data, image_size=8, channels=3).classes == CLASSES
    assert declared_facts(config.data, image_size=8, channels=3).shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("reader", "left_out", "message"),
    [
        ("csv", "schema_file", r"give --schema "),
        ("npz", "image_size", r"give --image-size 28 \(with"),
        ("npz", "channels", r"give --channels 1 \(with"),
        ("npz", "classes", r"give --classes a,b \(with"),
        ("folder", "channels", r"give --channels 1 \(with"),
    ],
)
def test_plan_asks_for_what_is_not_declared(reader: str, left_out: str, message: str, tmp_path: Path) -> None:
    config = own(tmp_path, reader).model_copy(update={left_out: None})
    with pytest.raises(UserError, match=message) as error:
        planning.plan(config)
    assert "\n" not in str(error.value)
    if reader == "folder":
        assert records.spec_of(config).shape == (1, 8, 8)  # a run may take it from the files


def test_what_is_declared_must_be_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected images of shape \(1, 9, 9\) in .* as declared, got \(1, 8, 8\)"):
        records.read_data(own(tmp_path, "npz", image_size=9))
    with pytest.raises(UserError, match="Expected a folder"):
        declared_facts(tmp_path / "t.txt")


def test_the_unit_of_the_schema_is_the_unit(tmp_path: Path) -> None:
    config = own(tmp_path, "csv")
    schema = tmp_path / "schema.toml"
    schema.write_text("unit = 'patient'\n" + schema.read_text())
    assert planning.declared_spec(config).unit == records.read_data(config).spec.unit == "patient"
    assert records.read_data(config).unit_train is not None


def test_nothing_is_held_out_where_the_caller_says_so(tmp_path: Path) -> None:
    config = own(tmp_path, "folder")
    whole, most = records.read_data(config, held_out=False), records.read_data(config)
    assert (len(whole.y_train), len(whole.y_test)) == (60, 0)
    assert 0 < len(most.y_test) < 30
