"""The whole command line: light, explained, and one clear line for every mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import typer

from prismfl import cli
from prismfl.cli import main
from prismfl.cli.main import app
from prismfl.runs.config import RunConfig
from tests.cli.command import QUICK, invoke


def test_json_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    for command in (["methods"], ["leaves"], ["data"], ["partition", "digits"]):
        done = invoke(*command, "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)


HEAVY = ("torch", "numpy", "scipy", "pandas", "matplotlib", "pydantic", "dp_accounting", "flwr", "fastapi", "yaml")


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """An import at the top of a command's file is paid by every command: help takes a fifth of a second."""
    code = (
        "import sys; sys.argv = ['prismfl', '--help']; from prismfl.cli.main import main\n"
        f"try: main()\nfinally: sys.stderr.write(' '.join(sorted(sys.modules.keys() & {set(HEAVY)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert "resume" in done.stdout


def walk(group: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    for part, inner in group.commands.items() if isinstance(group, click.Group) else ():
        yield from walk(inner, f"{name} {part}".strip())
    yield name, group


COMMANDS = dict(walk(typer.main.get_command(app), ""))
THEIRS = {("attack", "seed"), ("audit", "delta"), ("audit", "seed")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    options = [p for p in COMMANDS[name].params if isinstance(p, click.Option)]
    assert {p.name for p in options if not p.help and (name, p.name) not in THEIRS} == set()
    assert COMMANDS[name].help or not name


def test_the_defaults_that_help_names_are_those_of_a_config() -> None:
    """An option that is not given leaves the config's own default, so its help says that one."""
    found = 0
    for name in ("run", "plan"):
        for p in COMMANDS[name].params:
            said = re.search(r"\(default: ([^ ,;)]+)", getattr(p, "help", None) or "")
            if said and p.name in RunConfig.model_fields and (default := RunConfig.model_fields[p.name].default):
                assert said[1] == str(default), p.name
                found += 1
    assert found >= 10


def test_a_command_is_a_file() -> None:
    """`prismfl x` is cli/x.py."""
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert {name for name in COMMANDS if name and " " not in name} <= files


MISTAKES = {
    "unknown method": (["run", "-m", "fedavgg", *QUICK], "did you mean 'fedavg'"),
    "unknown data": (["run", "-m", "fedavg", "-d", "mnits"], "did you mean 'mnist"),
    "unknown key": (["run", "-m", "fedavg", *QUICK, "--set", "epochz=3"], "did you mean 'epochs'"),
    "unknown group": (["run", "-m", "fedavg", *QUICK, "--set", "foo.bar=3"], "Unknown key 'foo'"),
    "bad value": (["run", "-m", "fedavg", *QUICK, "--set", "epochs=-1"], "'epochs'"),
    "bad set": (["run", "-m", "fedavg", *QUICK, "--set", "epochs"], "--set key=value"),
    "epsilon 0": (["run", "-m", "dp-fedavg", *QUICK, "-e", "0"], "epsilon > 0"),
    "epsilon and sigma": (["run", "-m", "dp-fedavg", *QUICK, "-e", "1", "--set", "sigma=1"], "not both"),
    "neither": (["run", "-m", "dp-fedavg", *QUICK], "privacy budget"),
    "epsilon without guarantee": (["run", "-m", "fedavg", *QUICK, "-e", "1"], "no DP guarantee"),
    "delta 1": (["run", "-m", "dp-fedavg", *QUICK, "-e", "1", "--delta", "1"], "delta"),
    "model on tables": (["run", "-m", "fedavg", "-d", "breast-cancer", "--model", "sigmoid-lenet"], "mlp"),
    "unknown model": (["run", "-m", "fedavg", "-d", "digits", "--model", "resnet"], "convnet"),
    "missing data": (["run", "-m", "fedavg", "-d", "mnist", "--data-dir", "/nowhere"], "/nowhere"),
    "no such config": (["run", "nothere.toml"], "nothere.toml"),
    "no such run": (["resume", "nothere"], "not a run directory"),
    "no ledger": (["ledger", "status", "nothere"], "No ledger"),
    "code that is not there": (["run", "-m", "no_such.thing:METHOD", *QUICK], "no module 'no_such' on Python's path"),
    "code that is no method": (["plan", "-m", "os:system"], "not a prismfl.Method"),
    "bad format": (["methods", "--format", "xml"], "table or json"),
    "too many sites": (["run", "-m", "fedavg", *QUICK[:4], "--sites", "5000"], "sites"),
    "unknown split": (["run", "-m", "fedavg", *QUICK, "--split", "idd"], "did you mean 'iid'"),
    "unknown option": (["run", "--nope"], "nope"),
    "your data without a size": (["run", "-m", "fedavg", "-d", "{npz}", "--set", "classes=[a, b]"], "records"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_one_clear_line_and_changes_nothing(name: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    npz = tmp_path / "own.npz"
    np.savez(npz, x=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 2)
    args, message = MISTAKES[name]
    done = invoke(*(a.replace("{npz}", str(npz)) for a in args), cwd=work)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("prismfl: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(work.iterdir()) == []


def test_a_command_that_has_found_something_bad_ends_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """`audit` and `doctor` leave by typer.Exit, which the entry point must not swallow."""
    monkeypatch.setattr(main, "app", lambda **kwargs: 1)
    with pytest.raises(SystemExit) as stop:
        main.main()
    assert stop.value.code == 1
