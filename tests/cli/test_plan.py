"""`prismfl plan`: the price, without a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import QUICK, invoke


def test_plan_reads_no_data_and_agrees_with_the_run(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=2", "--set", "steps=3", "--format", "json"]
    done = invoke("plan", *QUICK, *args, cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert {"sigma", "epsilon", "epsilon_rdp", "delta", "unit", "relation", "releases"} <= set(plan)
    assert plan["sigma"] == pytest.approx(finished[1]["sigma"])
    assert plan["epsilon"] == pytest.approx(finished[1]["epsilon"])
    assert plan["epsilon_rdp"] > plan["epsilon"]
    missing = invoke(
        "plan", "-m", "dp-fedavg", "-d", "mnist", "-e", "1", cwd=tmp_path, env={"PRISMFL_DATA": "/nowhere"}
    )
    assert missing.returncode == 0, missing.stderr


def test_plan_warns_of_statistics_that_drown_before_anything_is_spent(tmp_path: Path) -> None:
    args = ["plan", "-m", "prism", "-d", "mnist-5k", "-n", "5", "--format", "json", "-e"]
    poor, rich = invoke(*args, "0.05", cwd=tmp_path), invoke(*args, "50", cwd=tmp_path)
    assert "expected noise-to-signal of a class at one site is" in poor.stderr
    assert json.loads(poor.stdout)["warnings"][0] in poor.stderr.replace("\n", " ")
    assert json.loads(rich.stdout)["warnings"] == []
    assert "warning" not in rich.stderr
