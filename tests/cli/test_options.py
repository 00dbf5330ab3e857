"""The options on data: the same names in every command, and the keys that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.cli.options import data_keys
from tests.cli.command import invoke, refused

NAMES = ("--schema", "--label", "--classes", "--records", "--unit", "--image-size", "--channels")
SITE = tuple(name for name in NAMES if name != "--records")  # a site's number of records is never asked


def test_options_stand_for_keys() -> None:
    found = data_keys({"schema": "s.toml", "classes": ["a, b", "c"], "epsilon": 1.0})
    assert found == {"schema_file": "s.toml", "classes": ["a", "b", "c"], "epsilon": 1.0}
    assert data_keys({"classes": []})["classes"] is None


@pytest.mark.parametrize(
    ("command", "names"),
    [
        *((command, NAMES) for command in ("run", "plan", "sweep", "new", "synth", "partition")),
        ("schema", ("--label", "--unit")),
        ("predict", ("--label",)),
        ("site init", SITE),
    ],
)
def test_every_command_that_takes_data_has_them(command: str, names: tuple[str, ...]) -> None:
    """The same names, and each says its default."""
    from typer.main import get_command

    from prismfl.cli.main import app

    found: Any = get_command(app)
    for part in command.split():
        found = found.commands[part]
    told = {name: one.help for one in found.params for name in one.opts if name in NAMES}
    assert set(told) == set(names)
    assert all("default" in words for words in told.values())


def test_a_typo_is_told_with_the_nearest_key_of_run_and_method(tmp_path: Path) -> None:
    refused("run", "-d", "digits", "--set", "record=100", cwd=tmp_path, words="did you mean 'records'?")
    refused("plan", "-d", "digits", "--set", "atmos=100", cwd=tmp_path, words="did you mean 'atoms'?")


def test_the_number_of_records_is_asked_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_text("no archive: to open it is another error")
    for command in ("run", "plan"):
        words = "--records 1000 (key: records)"
        refused(command, "-d", "broken.npz", "--classes", "a,b", "-e", "1", cwd=tmp_path, words=words)


def test_classes_may_be_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("")
    options = ["--records", "800", "--image-size", "28", "--channels", "1", "-e", "1", "-m", "prism"]
    for classes in (["--classes", "0,1"], ["--set", "classes=[0,1]"], ["--set", "classes=0,1"]):
        done = invoke("plan", "-d", "x.npz", *classes, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    refused("plan", "-d", "x.npz", "--set", "classes=[yes,no]", *options, cwd=tmp_path, words="quote them")
