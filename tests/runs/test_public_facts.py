"""The public facts of a run's models: kept when it begins, read without a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismfl.core.task import Task
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.runs.config import RunConfig
from prismfl.runs.directory import RunDirectory
from prismfl.runs.public_facts import keep_facts, read_facts


def task(shape: tuple[int, ...], classes: tuple[str, ...]) -> Task:
    return Task(data="own", shape=shape, classes=classes, sites=("site-0",), records=10, model="mlp")


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {}, {})


def test_what_is_kept_is_read(directory: RunDirectory) -> None:
    schema = load("wine-cultivar").schema
    assert schema is not None
    keep_facts(directory, task((schema.width,), schema.classes), schema)
    found = read_facts(directory, RunConfig(data="/nowhere"))
    assert (found.shape, found.classes, found.schema) == ((13,), schema.classes, schema)
    assert found.spec("own").kind == "table"
    assert found.encoder is None


def test_a_run_that_kept_none_is_read_by_its_declaration(directory: RunDirectory) -> None:
    found = read_facts(directory, RunConfig(data="digits"))
    assert (found.shape, len(found.classes)) == ((1, 8, 8), 10)
    with pytest.raises(UserError, match="neither a data set's name nor a path"):
        read_facts(directory, RunConfig(data="/nowhere"))


def test_a_federation_tells_its_data_in_its_description(directory: RunDirectory) -> None:
    spec = {"name": "own", "kind": "image", "shape": [3, 16, 16], "classes": ["a", "b"]}
    directory.write_json("federation.json", {"description": {"spec": spec, "public": "ab"}})
    found = read_facts(directory, RunConfig(data="own"))
    assert (found.shape, found.classes, found.public) == ((3, 16, 16), ("a", "b"), "ab")
    directory.write_json("federation.json", {"description": []})
    with pytest.raises(UserError, match="does not describe its data"):
        read_facts(directory, RunConfig(data="own"))


def test_columns_that_are_not_the_shape_are_refused(directory: RunDirectory) -> None:
    schema = load("wine-cultivar").schema
    assert schema is not None
    keep_facts(directory, task((schema.width,), schema.classes), schema)
    place = directory.path / "task.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "shape": [12]}))
    with pytest.raises(UserError, match="rows of 13 numbers"):
        read_facts(directory, RunConfig())
