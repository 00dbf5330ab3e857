"""`prismfl run` with several methods or seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismfl.cli.several import seeds_of
from prismfl.errors import UserError
from tests.cli.command import QUICK, invoke, refused, shown

ASKED = [*QUICK, "-e", "4", "--set", "subset=200", "--set", "rounds=1", "--set", "epochs=1"]


def test_methods_and_seeds_end_in_one_table_and_one_line(tmp_path: Path) -> None:
    done = invoke("run", "-m", "dp-fedavg", "-m", "fedavg", "--seeds", "2", "-o", "out", *ASKED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accuracy %" in done.stdout
    (best,) = [line for line in done.stderr.splitlines() if line.startswith("Best: ")]
    assert "fedavg with" in best
    assert "sent" in best
    assert best.count("no protection") == best.count(" dp-fedavg with "), "a seeded run is never called protected"
    assert {p.name for p in (tmp_path / "out").iterdir() if p.is_dir()} == {
        *("dp-fedavg_eps4_seed0", "dp-fedavg_eps4_seed1", "fedavg_seed0", "fedavg_seed1")
    }
    again = invoke("run", "-m", "dp-fedavg", "-m", "fedavg", "--seeds", "2", "-o", "out", *ASKED, cwd=tmp_path)
    assert "run 1 of" not in again.stderr, "what is finished is kept"


def test_no_model_needs_to_be_named_and_a_run_that_fails_is_listed(tmp_path: Path) -> None:
    """A run chooses the model that fits its data; its folder is still the one that was asked for."""
    asked = ["run", "-m", "fedavg", "-m", "local-only", "--seeds", "2", "-d", "breast-cancer", "-n", "2", "-o", "out"]
    asked += ["--set", "rounds=1", "--set", "epochs=1"]
    done = invoke(*asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 seeds each" in done.stdout
    (tmp_path / "out" / "fedavg_seed1" / "config.json").write_text("{}")
    again = invoke(*asked, cwd=tmp_path)
    assert again.returncode == 1
    assert "1 of 2 seeds" in again.stdout, "the table is there, with the seeds that are"
    assert "Best: " in again.stderr
    assert "not in the table: fedavg_seed1: failed, " in again.stderr


def test_one_method_and_one_seed_are_one_run(tmp_path: Path) -> None:
    found = shown("run", "-m", "dp-fedavg", "--seeds", "1", "-o", "one", *ASKED[:-2], cwd=tmp_path)
    assert (found["method"], found["seed"]) == ("dp-fedavg", 0)
    assert (tmp_path / "one" / "result.json").is_file()


@pytest.mark.parametrize(
    ("text", "first", "wanted"),
    [("3", None, (0, 1, 2)), ("2", 7, (7, 8)), ("0,5,5", None, (0, 5)), ("4,", None, (4,)), (None, 3, (3,))],
)
def test_seeds_are_a_number_or_a_list(text: str | None, first: int | None, wanted: tuple[int, ...]) -> None:
    assert seeds_of(text, first) == wanted


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1,x", "9999"])
def test_other_seeds_are_a_mistake(text: str) -> None:
    with pytest.raises(UserError, match="Expected --seeds"):
        seeds_of(text, None)


def test_own_records_pay_for_every_run_and_the_cap_is_asked_first(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=draw.integers(0, 255, (80, 8, 8), dtype=np.uint8), y=np.arange(80) % 2)
    own = ["--data", "own.npz", "--model", "logreg", "--sites", "2", "--set", "records=80"]
    own += ["--set", 'classes=["0","1"]', "-m", "dp-fedavg", "-e", "1", "--seeds", "2", "-o", "out"]
    own += ["--ledger", "book"]
    refused("run", *own, cwd=tmp_path, words="2 runs on your own records add up: epsilon about")
    refused("run", *own, "--cap", "1.1", "--yes", cwd=tmp_path, words="do not fit under the cap")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "book").exists()
