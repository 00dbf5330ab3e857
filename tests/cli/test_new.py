"""`prismfl new`: from a folder or a file to commands that need no option."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from prismfl.cli.main import app
from prismfl.methods.prism import prism
from prismfl.privacy.ledger.place import ledger_path
from prismfl.runs.config import read
from tests.cli.command import invoke, refused, shown

TINY = [part for k, v in {**prism.METHOD.tiny, "public_count": 100}.items() for part in ("--set", f"{k}={v}")]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = [f"{20 + i % 60},{'fm'[i % 2]},h{i % 3},{rng.choice(['no', 'yes'])}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["age,sex,hospital,ill", *lines]) + "\n")
    return tmp_path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "s" / name).mkdir(parents=True)
        for i in range(40):
            image = rng.integers(0, 120, (10, 10), dtype=np.uint8) + (100 if name == "dog" else 0)
            Image.fromarray(image.astype(np.uint8)).save(tmp_path / "s" / name / f"{i}.png")
    return tmp_path


def test_after_a_table_was_set_up_no_command_needs_an_option(table: Path) -> None:
    asked = ("--label", "ill", "--column", "age=18..100", "--split", "natural(hospital)", "--sites", "3")
    done = invoke("new", "t.csv", "--yes", "--look", *asked, cwd=table)
    assert done.returncode == 0, done.stderr
    assert "private until each of its lines is confirmed" in done.stderr
    assert "Only names and headers were looked at" in done.stderr
    assert not ledger_path().exists(), "nothing is charged"
    assert shown("plan", cwd=table)["method"] == "dp-fedavg"
    assert sum(row["all"] for row in shown("partition", cwd=table)) < 300
    assert shown("synth", cwd=table)["records"] == 300
    made = (table / "synthetic.csv").read_text().splitlines()
    assert made[0] == "age,sex,ill", "the column that deals records to sites is none of the copy"
    refused_again = invoke("synth", cwd=table)
    assert (refused_again.returncode, "'synthetic.csv' exists" in refused_again.stderr) == (2, True)
    assert shown("run", "--set", "rounds=1", cwd=table)["unit"] == "record"
    assert invoke("site", "init", cwd=table).returncode == 0
    assert read(table / "site" / "site.toml")["methods"] == ["dp-fedavg"]


def test_after_pictures_were_set_up_no_command_needs_an_option(pictures: Path) -> None:
    options = ("--image-size", "10", "--channels", "1", "--sites", "2", "--epsilon", "4")
    done = invoke("new", "s", "--yes", *options, cwd=pictures)
    assert done.returncode == 0, done.stderr
    keys = read(pictures / "prismfl.toml")
    assert 'data = "s"' in (pictures / "prismfl.toml").read_text()
    assert (keys["records"], keys["epsilon"]) == (30, 4.0)
    assert shown("plan", cwd=pictures)["epsilon"] == pytest.approx(4, rel=0.02)
    assert len(shown("partition", cwd=pictures)) == 2
    assert shown("synth", *TINY, cwd=pictures)["out"] == "synthetic"
    refused_again = invoke("synth", *TINY, cwd=pictures)
    assert "'synthetic' exists" in refused_again.stderr
    assert invoke("site", "init", "ward-3", cwd=pictures).returncode == 0
    assert read(pictures / "ward-3" / "site.toml")["name"] == "ward-3"


def test_questions_in_the_terminal(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table)
    # look, label (once wrong), unit, classes, sites, split, test, records, epsilon, then the columns
    answers = ["n", "sick", "ill", "", "no,yes", "2", "", "", "100", "2", "18..100", "f,m", "-"]
    done = CliRunner().invoke(app, ["new", "t.csv"], input="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.output
    assert "Expected one of age, sex, hospital, ill, got 'sick'" in done.output
    assert "73.1 %" in done.output
    keys = read(table / "prismfl.toml")
    assert (keys["sites"], keys["records"], keys["epsilon"]) == (2, 100, 2.0)
    assert "hospital" not in (table / "schema.toml").read_text()


def test_nothing_is_overwritten_unasked(pictures: Path) -> None:
    (pictures / "prismfl.toml").write_text("mine")
    options = ("new", "s", "--yes", "--image-size", "10", "--channels", "1")
    done = invoke(*options, cwd=pictures)
    assert (done.returncode, "--force" in done.stderr) == (2, True)
    assert (pictures / "prismfl.toml").read_text() == "mine"
    assert invoke(*options, "--force", cwd=pictures).returncode == 0


def test_a_mistake_writes_nothing(pictures: Path) -> None:
    (pictures / "s" / "cat" / "0.png").write_bytes(b"no image")
    done = invoke("new", "s", "--yes", "--image-size", "10", "--channels", "1", cwd=pictures)
    assert (done.returncode, "Cannot read image s/cat/0.png" in done.stderr) == (2, True)
    assert not (pictures / "prismfl.toml").exists()
    refused("new", "nothere", "--yes", cwd=pictures, words="there is nothing at nothere")


def test_an_answer_that_does_not_come_is_a_stop(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pictures)
    done = CliRunner().invoke(app, ["new", "s"], input="n\n")
    assert done.exit_code != 0
    assert not (pictures / "prismfl.toml").exists()


def test_npz_by_its_headers(tmp_path: Path) -> None:
    y = np.arange(60) % 2
    np.savez(tmp_path / "d.npz", x=np.zeros((60, 10, 10), np.uint8), y=y, patient=np.arange(60))
    options = ("--classes", "a,b", "--unit", "patient", "--sites", "2", "-m", "dp-fedavg", "--model", "logreg")
    done = invoke("new", "d.npz", "--yes", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    keys = read(tmp_path / "prismfl.toml")
    assert (keys["image_size"], keys["channels"], keys["records"], keys["unit"]) == (10, 1, 20, "patient")
    assert shown("plan", cwd=tmp_path)["unit"] == "patient"
    told = shown("synth", *TINY, cwd=tmp_path)
    assert json.loads((tmp_path / "synthetic" / "certificate.json").read_text())["unit"] == told["unit"] == "patient"
