"""`prismfl compare`: runs beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import QUICK, invoke, refused, run_json


def test_compare_joins_seeds(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, first = finished
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=2", "--set", "steps=3", "--seed", "1"]
    second = run_json(*QUICK, *args, cwd=cwd)
    done = invoke("compare", first["run_dir"], second["run_dir"], "--format", "json", cwd=cwd)
    (row,) = json.loads(done.stdout)
    assert row["seeds"] == 2
    assert row["accuracy"] == pytest.approx((first["accuracy"] + second["accuracy"]) / 2, abs=0.01)
    assert row["accuracy_std"] is not None
    assert row["leaves"] == "model"


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    refused("compare", tmp_path, cwd=tmp_path, words="is not a run directory")
