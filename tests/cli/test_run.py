"""`prismfl run`: what it reports, keeps and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prismfl.methods.prism import prism
from tests.cli.command import QUICK, invoke, run_json


def test_run_reports_what_the_interface_promises(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    expected = {
        "schema_version",
        "status",
        "method",
        "data",
        "split",
        "sites",
        "seed",
        "accuracy",
        "epsilon",
        "delta",
        "unit",
        "relation",
        "bytes_up",
        "bytes_down",
        "seconds",
        "run_dir",
        "guarantee",
    }
    assert expected <= set(result)
    assert result["status"] == "finished"
    assert 3.92 <= result["epsilon"] <= 4.0
    assert 0 <= result["accuracy"] <= 100
    folder = cwd / result["run_dir"]
    assert folder.parent.name == "dp-fedavg"
    assert folder.name.startswith("digits_eps4-")
    for name in ("config.json", "environment.json", "metrics.jsonl", "ledger.json", "transcript.jsonl", "result.json"):
        assert (folder / name).is_file(), name
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    resolved = json.loads((folder / "config.json").read_text())
    assert resolved["settings"]["sigma"] == result["sigma"] > 0


def test_bytes_are_counted_from_what_crossed(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    files = list((cwd / result["run_dir"] / "transcript").glob("*-up-*.safetensors"))
    assert len(files) == 4
    assert sum(f.stat().st_size for f in files) == result["bytes_up"]


def test_no_guarantee_is_a_value(tmp_path: Path) -> None:
    result = run_json(*QUICK, "--method", "fedavg", "--set", "rounds=1", "--set", "epochs=1", cwd=tmp_path)
    assert result["epsilon"] is None
    assert result["guarantee"] == "none"
    shown = invoke("compare", result["run_dir"], cwd=tmp_path)
    assert "no DP guarantee" in shown.stdout


def test_a_tampered_ledger_is_refused(tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=1", "--set", "steps=1"]
    result = run_json(*QUICK, *args, "--ledger", str(tmp_path / "ledgers"), cwd=tmp_path)
    assert result["status"] == "finished"
    (tmp_path / "ledgers" / "site-0.sqlite").unlink()
    done = invoke("run", *QUICK, *args, "--ledger", str(tmp_path / "ledgers"), "--seed", "5", cwd=tmp_path)
    assert done.returncode == 3
    assert "missing although its anchor exists" in done.stderr


def test_the_cap_holds_across_runs(tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "2", "--set", "rounds=1", "--set", "steps=2", "--cap", "2.4"]
    keep = ["--ledger", str(tmp_path / "ledgers")]
    run_json(*QUICK, *args, *keep, cwd=tmp_path)
    again = invoke("run", *QUICK, *args, *keep, "--seed", "1", cwd=tmp_path)
    assert again.returncode == 3
    assert again.stderr.count("\n") == 1
    assert "cap" in again.stderr


def test_a_weak_delta_is_a_warning(tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=1", "--set", "steps=1", "--delta", "0.01"]
    done = invoke("run", *QUICK, *args, cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: delta 0.01" in done.stderr


def test_a_config_file_and_its_overrides(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'method = "dp-fedavg"\ndata = "digits"\nmodel = "logreg"\nsites = 2\nepsilon = 4.0\n'
        "[settings]\nrounds = 3\nsteps = 1\n"
    )
    result = run_json("c.toml", "--set", "settings.rounds=1", "--seed", "4", cwd=tmp_path)
    assert (result["rounds"], result["seed"], result["sites"]) == (1, 4, 2)


def test_training_can_start_from_the_model_of_an_earlier_run(tmp_path: Path) -> None:
    """After one step a warm start is far ahead of a cold one, and it is said that its cost comes on top."""
    first = run_json(*QUICK, "--method", "fedavg", "--set", "rounds=3", "--set", "epochs=2", cwd=tmp_path)
    sets = [x for s in ("rounds=1", "steps=1", "lr=0.1") for x in ("--set", s)]
    more = [*QUICK, "--method", "dp-fedavg", "--epsilon", "4", *sets]
    warm = invoke("run", *more, "--set", f"start={first['run_dir']}", "--format", "json", cwd=tmp_path)
    assert "has no guarantee" in warm.stderr
    cold = run_json(*more, cwd=tmp_path)
    assert json.loads(warm.stdout)["accuracy"] > cold["accuracy"] + 20
    wrong = invoke("run", *more, "--set", f"start={first['run_dir']}", "--set", "model=mlp", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "same --model" in wrong.stderr


def test_the_number_of_images_is_an_option(tmp_path: Path) -> None:
    tiny = [part for k, v in prism.METHOD.tiny.items() if k != "images" for part in ("--set", f"{k}={v}")]
    args = (
        "-m",
        "prism",
        "-d",
        "digits",
        "-n",
        2,
        "-e",
        5,
        "--set",
        "public_count=40",
        "--images",
        7,
        *tiny,
        "-o",
        "run",
    )
    run_json(*map(str, args), cwd=tmp_path)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["images"] == 7
    done = invoke("run", *QUICK, "-m", "fedavg", "--images", "7", cwd=tmp_path)
    assert "Unknown key 'images' in the settings of fedavg" in done.stderr
