"""The command in this process, through its real entry point: starting Python anew each time takes seconds."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prismfl.cli.main import main

QUICK = ["--data", "digits", "--model", "logreg", "--sites", "2"]
SMALL = [*QUICK, "--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=2", "--set", "steps=3"]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def invoke(*args: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Done:
    """`prismfl ARGS` in a folder: its exit code and what it said."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["prismfl", *map(str, args)])
        for key, value in (env or {}).items():
            patch.setenv(key, value)
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def shown(*args: str | Path, cwd: Path) -> Any:
    """What `prismfl ARGS --format json` prints."""
    done = invoke(*args, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_json(*args: str | Path, cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = shown("run", *args, cwd=cwd)
    return found


def refused(*args: str | Path, cwd: Path, words: str, code: int = 2) -> None:
    """A mistake is one clear line."""
    done = invoke(*args, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("prismfl: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert done.stdout == ""
