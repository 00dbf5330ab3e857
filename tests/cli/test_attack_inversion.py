"""Inversion and property inference as commands on real runs, with runs in which they must fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prismfl.cli.main import app
from prismfl.methods import METHODS
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig

CSV_SCHEMA = """
label = "ill"
classes = ["no", "yes"]
train_size = 200

[[columns]]
name = "age"
type = "numeric"
min = 0
max = 100

[[columns]]
name = "smokes"
type = "binary"
categories = ["no", "yes"]
"""


def made(path: Path, method: str, **options: Any) -> Path:
    settings = options.pop("settings", {})
    config = {"data": "digits", "subset": 600, "sites": 2, "model": "logreg", **options}
    simulate.run(RunConfig(method=method, out=str(path), settings=settings, **config))
    return path


def attack(path: Path, name: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["attack", str(path), "-a", name, "--format", "json", "--records", "100"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("runs") / "fedavg", "fedavg", settings={"rounds": 4, "epochs": 3})


def test_class_images_of_a_trained_model_look_like_their_classes(fedavg: Path) -> None:
    found = attack(fedavg, "inversion")
    assert found["right"] >= 7
    assert found["control"]["right"] >= 7
    assert [row["class"] for row in found["rows"]] == list("0123456789")
    assert (fedavg / "attacks/inversion.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((fedavg / "attacks/inversion.json").read_text())["right"] == found["right"]


def test_a_site_rich_in_a_class_shows_in_exact_weights_and_not_through_heavy_noise(
    fedavg: Path, tmp_path: Path
) -> None:
    assert attack(fedavg, "property")["rows"][0]["AUC"] > 0.9
    hidden = made(
        tmp_path / "dp", "dp-fedavg", epsilon=0.05, settings={"rounds": 1, "steps": 2, "batch": 10, "clip": 0.1}
    )
    found = attack(hidden, "property")
    assert 0.1 < found["rows"][0]["AUC"] < 0.9
    assert found["rows"][0]["control"] > 0.95
    assert "does not promise" in found["words"]


def test_nothing_leaves_nothing_to_invert(tmp_path: Path) -> None:
    run = made(tmp_path / "local", "local-only", settings={"epochs": 1})
    assert attack(run, "inversion")["words"] == "does not apply: no model leaves the sites"
    assert attack(run, "property")["words"] == "does not apply: nothing leaves the sites"


def test_a_hidden_column_of_a_table(tmp_path: Path) -> None:
    rows = [f"{(7 * i) % 100},{'yes' if i % 3 else 'no'},{'yes' if (i * i) % 7 < 3 else 'no'}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["age,smokes,ill", *rows]) + "\n")
    (tmp_path / "t.toml").write_text(CSV_SCHEMA)
    run = made(
        tmp_path / "run",
        "fedavg",
        data=str(tmp_path / "t.csv"),
        schema_file=str(tmp_path / "t.toml"),
        subset=None,
        records=100,
        settings={"rounds": 1, "epochs": 1},
    )
    found = attack(run, "inversion")
    assert [row["column"] for row in found["rows"]] == ["smokes"]
    assert abs(found["rows"][0]["advantage"]) < 0.25
    assert "control" in found["rows"][0]


def test_statistics_of_a_site_tell_its_property_and_a_closed_form_head_no_image(tmp_path: Path) -> None:
    tiny = METHODS["prism-head"].tiny
    run = made(
        tmp_path / "head", "prism-head", public="procedural", public_count=200, epsilon=50.0, settings=dict(tiny)
    )
    assert attack(run, "property")["rows"][0]["AUC"] > 0.9
    assert attack(run, "inversion")["words"].startswith("does not apply: the model that leaves is no network")
    # A closed-form head answers all the same: it needs the run's public images to do so.
    [found] = attack(run, "loss")["results"]
    assert found["control"]["auc"] > 0.9
