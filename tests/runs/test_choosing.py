"""Which method a user's own command means: ours by name, anybody's by its place, or an object."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prismfl
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.runs import choosing, simulate
from prismfl.runs.directory import RunDirectory
from tests.cli.command import invoke, run_json
from tests.runs import foreign_method

THEIRS = "tests.runs.foreign_method"
QUICK: dict[str, Any] = {"data": "digits", "model": "logreg", "sites": 2, "epochs": 1}


def test_a_name_is_ours() -> None:
    assert choosing.choose("fedavg") == ("fedavg", METHODS["fedavg"])
    assert choosing.choose(METHODS["fedavg"]) == ("fedavg", METHODS["fedavg"])
    assert choosing.choose(f"{THEIRS}:OURS") == ("fedavg", METHODS["fedavg"]), "one run, whatever led to the method"


def test_a_place_and_an_object_are_theirs() -> None:
    assert choosing.choose(f"{THEIRS}:METHOD") == (f"{THEIRS}:METHOD", foreign_method.METHOD)
    assert choosing.choose(foreign_method.METHOD) == (":their-average", foreign_method.METHOD)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nowhere_at_all:METHOD", "no module 'nowhere_at_all' on Python's path"),
        ("tests.nowhere.deep:METHOD", "no module 'tests.nowhere' on Python's path"),
        (f"{THEIRS}:NOTHING", "has no 'NOTHING'"),
        (f"{THEIRS}:NUMBER", "is a int, not a prismfl.Method"),
        (f"{THEIRS}:CLASH", "called 'fedavg' like one of ours"),
        (f"{THEIRS}:ODD", "lower-case letters, digits and dashes"),
        (":their-average", "was given as a Python object"),
        ("a:b:c", "Expected a method's name or pkg.mod:METHOD"),
        ("../x:METHOD", "Expected a method's name or pkg.mod:METHOD"),
        ("x:", "Expected a method's name or pkg.mod:METHOD"),
        ("fedavgg", "did you mean 'fedavg'"),
        (3, "got int"),
        (replace(METHODS["fedavg"], summary="mine"), "like one of ours"),
    ],
)
def test_a_mistake_is_one_clear_line(given: Any, words: str) -> None:
    with pytest.raises(UserError) as error:
        choosing.choose(given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("import not_there", "No module named 'not_there'"), ("def f(:", "invalid syntax")],
)
def test_a_module_that_fails_says_why(text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_method.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=words):
        choosing.choose("broken_method:METHOD")


def test_python_takes_an_object(tmp_path: Path) -> None:
    own = prismfl.run(method=foreign_method.METHOD, **QUICK, out=str(tmp_path / "own"))
    assert (own.method, prismfl.open_run(tmp_path / "own").config.method) == ("their-average", ":their-average")
    ours = prismfl.run("fedavg", **QUICK, out=str(tmp_path / "ours"))
    assert own.digest == ours.digest, "the same functions give the same run"
    assert prismfl.plan(foreign_method.METHOD, **QUICK).method == "their-average"


def cut_off(path: Path) -> None:
    RunDirectory.open(path).set_status("running")


def test_the_command_line_takes_a_place_and_goes_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(f'method = "{THEIRS}:METHOD"\ndata = "digits"\nmodel = "logreg"\nsites = 2\n')
    found = run_json("c.toml", "--set", "epochs=1", "-o", "run", cwd=tmp_path)
    assert found["method"] == "their-average"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["method"] == f"{THEIRS}:METHOD"
    planned = invoke("plan", "-m", f"{THEIRS}:METHOD", "-d", "digits", "--format", "json", cwd=tmp_path)
    assert json.loads(planned.stdout)["method"] == "their-average"
    cut_off(tmp_path / "run")
    again = invoke("resume", "run", "--format", "json", cwd=tmp_path)
    assert json.loads(again.stdout)["digest"] == found["digest"]


def test_a_run_of_an_object_cannot_go_on(tmp_path: Path) -> None:
    prismfl.run(foreign_method.METHOD, **QUICK, out=str(tmp_path / "run"))
    assert simulate.resume(tmp_path / "run").method == "their-average", "a finished one just reports"
    cut_off(tmp_path / "run")
    done = invoke("resume", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "run it as pkg.mod:METHOD" in done.stderr


def test_a_default_place_has_the_methods_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(prismfl.run(foreign_method.METHOD, **QUICK).run_dir).parent == Path("runs/their-average")
