"""The whole command line: light, explained, and one clear line for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import QUICK, invoke


def test_json_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    for command in (["methods"], ["leaves"], ["data"], ["partition", "digits"]):
        done = invoke(*command, "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)


def test_without_a_subcommand_there_is_help_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['prismfl', '--help']; from prismfl.cli.main import main\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "resume" in done.stdout


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
