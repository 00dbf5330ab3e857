"""The command line as people use it: output, exit codes, and one clear line for every mistake."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismfl.cli.main import main

QUICK = ["--data", "digits", "--model", "logreg", "--sites", "2"]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def prismfl(*args: str, cwd: Path, env: dict[str, str] | None = None) -> Done:
    """The command in this process, through its real entry point (starting Python anew each time takes seconds)."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["prismfl", *args])
        for key, value in (env or {}).items():
            patch.setenv(key, value)
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def run_json(*args: str, cwd: Path) -> dict[str, Any]:
    done = prismfl("run", *args, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One small private run that several tests look at."""
    cwd = tmp_path_factory.mktemp("cli")
    result = run_json(
        *QUICK, "--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=2", "--set", "steps=3", cwd=cwd
    )
    return cwd, result


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
    shown = prismfl("compare", result["run_dir"], cwd=tmp_path)
    assert "no DP guarantee" in shown.stdout


def test_plan_reads_no_data_and_agrees_with_the_run(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=2", "--set", "steps=3", "--format", "json"]
    done = prismfl("plan", *QUICK, *args, cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert {"sigma", "epsilon", "epsilon_rdp", "delta", "unit", "relation", "releases"} <= set(plan)
    assert plan["sigma"] == pytest.approx(finished[1]["sigma"])
    assert plan["epsilon"] == pytest.approx(finished[1]["epsilon"])
    assert plan["epsilon_rdp"] > plan["epsilon"]
    missing = prismfl(
        "plan", "-m", "dp-fedavg", "-d", "mnist", "-e", "1", cwd=tmp_path, env={"PRISMFL_DATA": "/nowhere"}
    )
    assert missing.returncode == 0, missing.stderr


def test_plan_warns_of_statistics_that_drown_before_anything_is_spent(tmp_path: Path) -> None:
    args = ["plan", "-m", "prism", "-d", "mnist-5k", "-n", "5", "--format", "json", "-e"]
    poor, rich = prismfl(*args, "0.05", cwd=tmp_path), prismfl(*args, "50", cwd=tmp_path)
    assert "expected noise-to-signal of a class at one site is" in poor.stderr
    assert json.loads(poor.stdout)["warnings"][0] in poor.stderr.replace("\n", " ")
    assert json.loads(rich.stdout)["warnings"] == []
    assert "warning" not in rich.stderr


def test_data_names_the_public_images_as_well(tmp_path: Path) -> None:
    shown = prismfl("data", cwd=tmp_path).stdout
    assert "procedural-silhouettes" in shown
    assert "kannada+omniglot" in shown.replace("\n", " ")


def test_json_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    for command in (["methods"], ["leaves"], ["data"], ["partition", "digits"]):
        done = prismfl(*command, "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)


def test_compare_joins_seeds(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, first = finished
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=2", "--set", "steps=3", "--seed", "1"]
    second = run_json(*QUICK, *args, cwd=cwd)
    done = prismfl("compare", first["run_dir"], second["run_dir"], "--format", "json", cwd=cwd)
    (row,) = json.loads(done.stdout)
    assert row["seeds"] == 2
    assert row["accuracy"] == pytest.approx((first["accuracy"] + second["accuracy"]) / 2, abs=0.01)
    assert row["accuracy_std"] is not None
    assert row["leaves"] == "model"


def test_ledger_commands(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    for command in ("status", "verify", "history"):
        done = prismfl("ledger", command, result["run_dir"], "--format", "json", cwd=cwd)
        assert done.returncode == 0, done.stderr
    rows = json.loads(prismfl("ledger", "status", result["run_dir"], "--format", "json", cwd=cwd).stdout)
    spent = [row["epsilon spent"].partition(" ") for row in rows]
    assert [float(number) for number, _, _ in spent] == pytest.approx([result["epsilon"]] * 2, rel=1e-3)
    assert {words for _, _, words in spent} == {"(simulation: no protection)"}


def test_a_tampered_ledger_is_refused(tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=1", "--set", "steps=1"]
    result = run_json(*QUICK, *args, "--ledger", str(tmp_path / "ledgers"), cwd=tmp_path)
    assert result["status"] == "finished"
    (tmp_path / "ledgers" / "site-0.sqlite").unlink()
    done = prismfl("run", *QUICK, *args, "--ledger", str(tmp_path / "ledgers"), "--seed", "5", cwd=tmp_path)
    assert done.returncode == 3
    assert "missing although its anchor exists" in done.stderr


def test_the_cap_holds_across_runs(tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "2", "--set", "rounds=1", "--set", "steps=2", "--cap", "2.4"]
    keep = ["--ledger", str(tmp_path / "ledgers")]
    run_json(*QUICK, *args, *keep, cwd=tmp_path)
    again = prismfl("run", *QUICK, *args, *keep, "--seed", "1", cwd=tmp_path)
    assert again.returncode == 3
    assert again.stderr.count("\n") == 1
    assert "cap" in again.stderr


def test_without_a_subcommand_there_is_help_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['prismfl', '--help']; from prismfl.cli.main import main\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
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
    done = prismfl(*(a.replace("{npz}", str(npz)) for a in args), cwd=work)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("prismfl: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(work.iterdir()) == []


def test_a_weak_delta_is_a_warning(tmp_path: Path) -> None:
    args = ["--method", "dp-fedavg", "--epsilon", "4", "--set", "rounds=1", "--set", "steps=1", "--delta", "0.01"]
    done = prismfl("run", *QUICK, *args, cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: delta 0.01" in done.stderr


def test_a_config_file_and_its_overrides(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'method = "dp-fedavg"\ndata = "digits"\nmodel = "logreg"\nsites = 2\nepsilon = 4.0\n'
        "[settings]\nrounds = 3\nsteps = 1\n"
    )
    result = run_json("c.toml", "--set", "settings.rounds=1", "--seed", "4", cwd=tmp_path)
    assert (result["rounds"], result["seed"], result["sites"]) == (1, 4, 2)


def test_a_run_of_another_version_is_refused(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 999, "status": "running"}')
    done = prismfl("resume", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "format 999" in done.stderr


def test_training_can_start_from_the_model_of_an_earlier_run(tmp_path: Path) -> None:
    """After one step a warm start is far ahead of a cold one, and it is said that its cost comes on top."""
    first = run_json(*QUICK, "--method", "fedavg", "--set", "rounds=3", "--set", "epochs=2", cwd=tmp_path)
    sets = [x for s in ("rounds=1", "steps=1", "lr=0.1") for x in ("--set", s)]
    more = [*QUICK, "--method", "dp-fedavg", "--epsilon", "4", *sets]
    warm = prismfl("run", *more, "--set", f"start={first['run_dir']}", "--format", "json", cwd=tmp_path)
    assert "has no guarantee" in warm.stderr
    cold = run_json(*more, cwd=tmp_path)
    assert json.loads(warm.stdout)["accuracy"] > cold["accuracy"] + 20
    wrong = prismfl("run", *more, "--set", f"start={first['run_dir']}", "--set", "model=mlp", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "same --model" in wrong.stderr
