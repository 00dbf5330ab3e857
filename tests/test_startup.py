"""What a small run loads, and what it does without: an import that is not needed is time before every answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import json, sys
from prismfl.cli.main import main
sys.argv = ["prismfl", "run", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end
print(json.dumps(sorted(sys.modules)))
"""
TINY = ["-d", "digits", "--model", "logreg", "--sites", "2", "--format", "json", "--set", "rounds=1"]
HEAVY = {"scipy", "sklearn", "dp_accounting", "matplotlib", "pandas", "flwr", "ray", "onnxruntime", "rich.table"}


def loaded(folder: Path, *arguments: str) -> set[str]:
    """Every module that a run has loaded in its own process, from the command to the result."""
    command = [sys.executable, "-c", RUN, *TINY, *arguments, "--workers", "1", "--out", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_run_without_privacy_loads_no_accountant_and_no_other_method(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "-m", "fedavg", "--set", "epochs=1")
    assert "torch" in modules
    assert not HEAVY & modules
    assert not {name for name in modules if name.startswith(("prismfl.report", "prismfl.adversary", "prismfl.synth"))}
    families = {name.split(".")[2] for name in modules if name.startswith("prismfl.methods.")}
    assert families == {"averaging", "robust"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one core the accountant is loaded where it is used")
def test_the_accountant_of_a_private_run_is_loaded_in_a_process_beside_it(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "-m", "dp-fedavg", "-e", "8", "--set", "steps=1", "--set", "tuning=fixed")
    assert not HEAVY & modules
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert 7.5 < result["epsilon"] <= 8.0
