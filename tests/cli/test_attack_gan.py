"""`prismfl attack RUN -a gan` on real runs, with runs in which it must fail or does not apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

from prismfl.adversary.cases.population import hidden_classes
from prismfl.cli.main import app
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig


def drawn(path: Path, method: str, **options: Any) -> dict[str, Any]:
    """The attack's report on a small run in which a site holds eight of the ten digits."""
    config = {"data": "digits", "sites": 2, "model": "lenet", "transcript": "full", **options}
    config.setdefault("split", "pathological(classes_per_site=8)")
    simulate.run(RunConfig(method=method, out=str(path), **config))
    result = CliRunner().invoke(app, ["attack", str(path), "-a", "gan", "--format", "json"], catch_exceptions=False)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_site_draws_classes_that_only_the_others_hold(tmp_path: Path) -> None:
    found = drawn(tmp_path / "run", "fedavg", settings={"rounds": 6, "epochs": 3})
    assert len(found["rows"]) == 2
    assert all(row["held"] == 0 for row in found["rows"])
    assert found["share"] > 0.6
    assert found["untrained"] < 0.2
    assert found["words"].startswith(f"{100 * found['share']:.0f} % of the drawn pictures pass for the class")
    assert (tmp_path / "run/attacks/gan.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "run/attacks/gan.json").read_text())["rows"] == found["rows"]


def test_a_model_drowned_in_noise_teaches_little(tmp_path: Path) -> None:
    found = drawn(tmp_path / "run", "dp-fedavg", epsilon=0.05, settings={"rounds": 2, "steps": 2})
    assert found["share"] < 0.4


def test_no_model_or_no_pictures_no_attack(tmp_path: Path) -> None:
    alone = drawn(tmp_path / "alone", "local-only", subset=80, settings={"epochs": 1})
    assert alone["words"] == "does not apply: no model leaves"
    table = {"data": "breast-cancer", "model": "logreg", "split": "iid"}
    rows = drawn(tmp_path / "rows", "fedavg", settings={"rounds": 1, "epochs": 1}, **table)
    assert rows["words"] == "does not apply: the attack draws pictures, and the data are tables"


def test_hidden_classes_are_those_the_site_lacks_or_its_rarest() -> None:
    assert hidden_classes(torch.tensor([0, 3, 0, 1])) == [0, 2]
    assert hidden_classes(torch.tensor([4, 3, 2, 5])) == [2]
