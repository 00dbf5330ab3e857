"""`prismfl sweep`, and `prismfl report` on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import QUICK, invoke, refused, shown

ASKED = ["-m", "dp-fedavg,fedavg", "-e", "1,3", "--seeds", "0,1", *QUICK]
SETS = ["--set", "subset=200", "--set", "rounds=1", "--set", "dp-fedavg.steps=2", "--set", "epochs=1"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    cwd = tmp_path_factory.mktemp("sweep")
    return cwd, shown("sweep", "-o", "out", *ASKED, *SETS, cwd=cwd)


def test_rows_and_runs_as_json_and_a_picture(swept: tuple[Path, dict[str, Any]]) -> None:
    cwd, facts = swept
    assert [(r["method"], r["epsilon_asked"], r["seeds"]) for r in facts["rows"]] == [
        ("dp-fedavg", 1.0, 2),
        ("dp-fedavg", 3.0, 2),
        ("fedavg", None, 2),
    ]
    assert {cell["status"] for cell in facts["cells"]} == {"finished"}
    assert {p.name for p in (cwd / "out").iterdir() if p.is_dir()} == {cell["name"] for cell in facts["cells"]}
    assert (cwd / "out" / "tradeoff.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((cwd / "out" / "sweep_results.json").read_text())["rows"] == facts["rows"]


def test_the_same_command_has_nothing_left_to_do(swept: tuple[Path, dict[str, Any]]) -> None:
    done = invoke("sweep", "-o", "out", *ASKED, *SETS, cwd=swept[0])
    assert done.returncode == 0
    assert "run 1 of" not in done.stderr
    assert "accuracy %" in done.stdout
    assert "Picture: out/tradeoff.png" in done.stderr


def test_another_command_is_refused(swept: tuple[Path, dict[str, Any]]) -> None:
    words = "'out' holds another sweep (delta 1e-05 there, 1e-06 here); choose another --out."
    refused("sweep", "-o", "out", *ASKED, *SETS, "--delta", "1e-6", cwd=swept[0], words=words)


def test_a_report_of_a_sweep_is_its_trade_off(swept: tuple[Path, dict[str, Any]]) -> None:
    cwd, facts = swept
    found = shown("report", "out", cwd=cwd)
    assert (found["edition"], found["page"], found["twin"]) == ("sharing", "out/report.html", "out/report.json")
    assert "Accuracy against epsilon" in (cwd / "out" / "report.html").read_text()
    refused("report", "out", "out", cwd=cwd, words="A sweep has a page of its own")
    assert invoke("report", f"out/{facts['cells'][0]['name']}", cwd=cwd).returncode == 0, "a run of it has its own page"


def test_where_the_runs_go_must_be_said(tmp_path: Path) -> None:
    refused("sweep", *ASKED, cwd=tmp_path, words="Missing option '--out'")
    refused("sweep", "-o", "x", "-e", "one", cwd=tmp_path, words="Expected --epsilon as values with commas")


def test_a_failed_run_is_an_exit_code(tmp_path: Path) -> None:
    """The cap of a ledger that lasts refuses the second run of a site."""
    args = ["-m", "dp-fedavg", "-e", "1,2", "--ledger", str(tmp_path / "l"), "--cap", "1.5", *QUICK, *SETS[:-2]]
    done = invoke("sweep", "-o", "out", *args, cwd=tmp_path)
    assert done.returncode == 1
    assert "1 of 2 runs failed; the same command tries them again." in done.stderr
    assert "accuracy %" in done.stdout


def test_own_records_are_not_spent_without_a_yes(tmp_path: Path) -> None:
    values = np.random.default_rng(0)
    x, y = values.integers(0, 255, (60, 8, 8), dtype=np.uint8), values.integers(0, 2, 60)
    np.savez(tmp_path / "own.npz", x=x, y=y)
    own = ("records=24", "classes=['0', '1']", "image_size=8", "rounds=1", "steps=1", "batch=8")
    sets = [word for line in own for word in ("--set", line)]
    args = [
        "sweep",
        "-o",
        "out",
        "-m",
        "dp-fedavg",
        "-e",
        "1,2",
        "-d",
        "own.npz",
        "--model",
        "logreg",
        "-n",
        "2",
        *sets,
    ]
    refused(*args, cwd=tmp_path, words="2 runs on your own records add up: epsilon about ")
    refused(*args, cwd=tmp_path, words="Start it with --yes.")
    assert not (tmp_path / "out").exists()
    done = invoke(*args, "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "add up: epsilon about" in done.stderr
    assert (tmp_path / "out" / "on-site-tradeoff.png").exists()
