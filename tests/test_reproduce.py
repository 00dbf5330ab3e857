"""The queue of the tables: what counts as old, what is named as missing, and what a failed row leaves behind."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPRODUCE = Path(__file__).parents[1] / "reproduce"
METHOD = ("prismfl.methods.x",)
PACKAGE = {
    "core/door.py": "import torch\n",
    "core/rounds.py": "from prismfl.core import door\n",
    "methods/x.py": "from prismfl.kernels.k import f\n\n\ndef client():\n    return f()\n",
    "methods/other.py": "def client():\n    return 2\n",
    "kernels/k.py": '"""A kernel."""\n\n\ndef f():\n    from prismfl.nets import late\n\n    return late.g()\n',
    "nets/late.py": "def g():\n    return 1\n",
    "report/page.py": "def page():\n    return 1\n",
}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPRODUCE))
    return importlib.import_module("rows")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, rows: ModuleType) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPRODUCE))
    module = importlib.import_module("all")
    monkeypatch.setattr(module, "modules_of", lambda method: METHOD)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        file = tmp_path / "prismfl" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "prismfl"


def modules(method: str) -> tuple[str, ...]:
    return METHOD


def table_of(rows: ModuleType, folder: Path, found: list[dict[str, Any]], *names: str, text: str = "") -> Any:
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "run.py").write_text(text)
    wanted = [rows.Wanted(name, ("x",), (name,)) for name in names]
    by_name = lambda value: {row["name"]: row for row in value}  # noqa: E731
    return rows.Table("t", folder / "run.py", (folder / "results.json",), by_name, lambda: wanted, 7.0)


def states(rows: ModuleType, table: Any, source: Path) -> dict[str, str]:
    return {one.row.name: one.state for one in rows.status(table, source=source, modules=modules)}


# What makes a row old


@pytest.mark.parametrize("changed", ["methods/x.py", "kernels/k.py", "nets/late.py", "core/door.py"])
def test_a_changed_file_makes_a_row_old(rows: ModuleType, source: Path, tmp_path: Path, changed: str) -> None:
    digest = rows.code_of(["x"], source=source, modules=modules)
    table = table_of(rows, tmp_path, [{"name": "a", "code": digest}], "a")
    assert states(rows, table, source) == {"a": "run"}
    (source / changed).write_text(PACKAGE[changed] + "\nMORE = 3\n")
    assert states(rows, table, source) == {"a": "older"}


def test_words_and_other_code_do_not(rows: ModuleType, source: Path, tmp_path: Path) -> None:
    table = table_of(rows, tmp_path, [{"name": "a", "code": rows.code_of(["x"], source=source, modules=modules)}], "a")
    (source / "kernels/k.py").write_text("# why\n" + PACKAGE["kernels/k.py"].replace("A kernel.", "The kernel."))
    for other in ("report/page.py", "methods/other.py"):
        (source / other).write_text("CHANGED = 1\n")
    assert states(rows, table, source) == {"a": "run"}


def test_a_missing_row_is_named_and_a_row_of_unknown_code_is_not_taken_for_new(
    rows: ModuleType, source: Path, tmp_path: Path
) -> None:
    table = table_of(rows, tmp_path, [{"name": "a", "cpu_minutes": 4.0}], "a", "b")
    assert states(rows, table, source) == {"a": "older, unknown", "b": "missing"}
    assert [one.minutes for one in rows.status(table, source=source, modules=modules)] == [4.0, 4.0]
    other = rows.Wanted("c", (), reason="another environment")
    left_out = rows.Table("t", table.script, table.results, table.rows, lambda: [other], 7.0)
    assert states(rows, left_out, source) == {"c": "left out"}


# What the queue does


SCRIPT = """
import json, pathlib, sys
file = pathlib.Path(__file__).with_name("results.json")
rows = json.loads(file.read_text())
if sys.argv[1] == "bad":
    raise SystemExit(3)
if not any(row["name"] == sys.argv[1] for row in rows):
    file.write_text(json.dumps([*rows, {"name": sys.argv[1], "score": 2}], indent=1) + "\\n")
"""


def test_a_row_that_is_made_keeps_its_code(queue: ModuleType, rows: ModuleType, tmp_path: Path) -> None:
    table = table_of(rows, tmp_path, [{"name": "a", "score": 1}], "a", "b", text=SCRIPT)
    for one in rows.status(table, modules=modules):
        assert queue.make(one)
    found = json.loads((tmp_path / "results.json").read_text())
    code = rows.code_of(["x"], modules=modules)
    assert found == [{"name": "a", "score": 2, "code": code}, {"name": "b", "score": 2, "code": code}]


def test_a_row_that_fails_leaves_the_old_one(
    queue: ModuleType, rows: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = table_of(rows, tmp_path, [{"name": "bad", "score": 1}, {"name": "a", "score": 1}], "bad", text=SCRIPT)
    before = (tmp_path / "results.json").read_text()
    (one,) = rows.status(table, modules=modules)
    assert not queue.make(one)
    assert (tmp_path / "results.json").read_text() == before
    assert "bad was not made (exit code 3)" in capfd.readouterr().out


def test_a_file_keeps_its_look(rows: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "lines.json"
    file.write_text('[\n{"name": "a"},\n{"name": "b"}\n]\n')
    by_name = lambda value: {row["name"]: row for row in value}  # noqa: E731
    rows.stamp(file, ["b"], "12", by_name)
    assert file.read_text() == '[\n{"name": "a"},\n{"name": "b", "code": "12"}\n]\n'
    rows.without(file, "a", by_name)
    assert file.read_text() == '[\n{"name": "b", "code": "12"}\n]\n'


def test_every_finished_row_is_one_that_its_table_asks_for(rows: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row under a name that nobody asks for would count as missing and be run again."""
    monkeypatch.syspath_prepend(str(REPRODUCE))
    module = importlib.import_module("all")
    for table in module.every_table():
        asked = [row.name for row in table.wanted()]
        assert len(set(asked)) == len(asked) > 0, table.name
        assert set(table.done()) <= set(asked), table.name
    for name in ("rows", "all"):
        sys.modules.pop(name, None)
