"""`prismfl predict`: lines on stdout or in a new file, words on stderr, mistakes as one line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tests.cli.command import invoke, refused

Finished = tuple[Path, dict[str, Any]]


def test_lines_on_stdout_and_the_count_beside(finished: Finished) -> None:
    cwd, result = finished
    done = invoke("predict", result["run_dir"], "digits", cwd=cwd)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 360
    assert abs(sum(float(rows[0][f"p_{c}"]) for c in range(10)) - 1) < 1e-4
    assert done.stderr == "360 records classified by model 'network'\n"


def test_a_score_is_said_only_if_asked_for(finished: Finished, tmp_path: Path) -> None:
    cwd, result = finished
    done = invoke("predict", result["run_dir"], "digits", "-o", tmp_path / "a.jsonl", cwd=cwd)
    assert "accuracy" not in done.stdout + done.stderr
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 360
    done = invoke("predict", result["run_dir"], "digits", "-o", tmp_path / "b.csv", "--score", cwd=cwd)
    assert f"{result['accuracy']:.2f} %" in done.stdout
    for words in ("balanced accuracy", "AUC", "recall of 9"):
        assert words in done.stdout
    done = invoke("predict", result["run_dir"], "digits", "--score", "--format", "jsonl", cwd=cwd)
    assert all(json.loads(line) for line in done.stdout.splitlines()), "nothing but lines on stdout"
    assert "AUC" in done.stderr


def test_what_was_left_out_is_said(finished: Finished, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "in").mkdir()
    Image.new("RGB", (20, 30)).save(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "b.png").write_bytes(b"no picture")
    done = invoke("predict", finished[1]["run_dir"], tmp_path / "in", cwd=finished[0])
    assert done.stdout.splitlines()[1].startswith("a.png,")
    assert "1 left out: the picture cannot be read\n" in done.stderr


def test_mistakes(finished: Finished, tmp_path: Path) -> None:
    cwd, result = finished
    run = result["run_dir"]
    (tmp_path / "a.csv").write_text("mine")
    refused("predict", run, "digits", "-o", tmp_path / "a.csv", cwd=cwd, words="exists already")
    assert (tmp_path / "a.csv").read_text() == "mine"
    refused("predict", run, "digits", "--model", "head", cwd=cwd, words="no model 'head'; it has network")
    refused("predict", run, "digits", "--format", "xml", cwd=cwd, words="csv or jsonl")
    refused("predict", run, "wine-cultivar", "-o", tmp_path / "b.csv", cwd=cwd, words="shape")
    assert not (tmp_path / "b.csv").exists()
    refused("predict", tmp_path, "digits", cwd=cwd, words="not a run directory")
