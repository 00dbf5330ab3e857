"""A run's synthetic table is judged on held-out records, where there are both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prismfl
from prismfl.core.job import Job
from prismfl.core.payloads import SyntheticSet
from prismfl.core.task import Task
from prismfl.data import load
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.methods.generators.marginals import Config
from prismfl.metrics.judged import BOOSTED, LINEAR, LOGISTIC
from prismfl.report.tables import result_table
from prismfl.runs.judging import judge_table


def test_a_run_on_a_table_reports_what_is_learnt_from_it(tmp_path: Path) -> None:
    found = prismfl.run(
        "dp-marginals", data="breast-cancer", sites=2, epsilon=20.0, out=str(tmp_path / "run"), fitter="copula"
    )
    assert found.tables["useful"].keys() == {LOGISTIC, BOOSTED}
    assert found.tables["useful"][LOGISTIC]["auc"] > 70
    assert {"tv_1", "tv_2", "tv_3", "correlations", "rare_categories"} == found.tables["faithful"].keys()
    shown = "".join(str(cell) for column in result_table(found.as_dict()).columns for cell in column.cells)
    assert f"{LOGISTIC}, on synthetic" in shown


def test_nothing_is_judged_without_classes_held_out_records_or_a_table() -> None:
    data = load("wine-cultivar")
    task = Task("wine-cultivar", (13,), tuple("abc"), ("a",), 100)
    job = Job("t", METHODS["dp-marginals"], Config(sigma=1.0), task, 0)
    items = {"synthetic": SyntheticSet.of(data.x_train, data.y_train)}
    assert judge_table(job, items, data)["records"] == len(data.y_train)
    none = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
    empty = {"synthetic": SyntheticSet.of(data.x_train[:0], data.y_train[:0])}
    alone = replace(job, task=replace(task, classes=("all",)))
    picture = replace(job, task=replace(task, shape=(1, 8, 8)))
    assert judge_table(job, items, none) == judge_table(job, empty, data) == judge_table(job, {}, data) == {}
    assert judge_table(alone, items, data) == judge_table(picture, items, data) == {}
    assert torch.equal(items["synthetic"].x, data.x_train)


def clinic(place: Path) -> dict[str, Any]:
    """Costs rise with age; the schema declares them as the label and as a number."""
    draws = np.random.default_rng(0)
    age = draws.integers(20, 90, 900)
    cost = np.clip(40 * age + draws.normal(0, 200, 900), 0, 5000)
    rows = [f"{a},{c:.1f},{'ab'[i % 2]}" for i, (a, c) in enumerate(zip(age, cost))]
    (place / "clinic.csv").write_text("\n".join(["age,cost,ward", *rows]) + "\n")
    (place / "schema.toml").write_text(
        'label = "cost"\n[[columns]]\nname = "age"\nmin = 0\nmax = 100\ninteger = true\n[[columns]]\nname = "cost"\n'
        'min = 0\nmax = 5000\n[[columns]]\nname = "ward"\ntype = "binary"\ncategories = ["a", "b"]\n'
    )
    return {"data": str(place / "clinic.csv"), "schema_file": str(place / "schema.toml")}


@pytest.mark.parametrize(
    ("method", "settings"),
    [("dp-marginals", {"fitter": "copula"}), ("3dgl", {"synthesizers": ("dp-copula",), "queries": 10, "samples": 700})],
)
def test_a_number_is_predicted_from_the_synthetic_table(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    found = prismfl.run(
        method, **clinic(tmp_path), sites=2, records=350, epsilon=20.0, seed=0, out=str(tmp_path / "run"), **settings
    )
    assert found.accuracy is None
    assert not found.models
    learnt = found.tables["useful"]
    assert learnt.keys() == {LINEAR, BOOSTED}
    assert learnt[LINEAR]["r2"] > 0.5
    assert 50 < learnt[LINEAR]["mae"] < 600
    shown = "".join(str(cell) for column in result_table(found.as_dict()).columns for cell in column.cells)
    assert "R2 0." in shown
    assert "accuracy" not in shown
    assert (tmp_path / "run" / "gen" / "synthetic.csv").read_text().startswith("age,cost,ward\n")


def test_a_method_that_learns_classes_refuses_a_number_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="predicts is a number; give --method dp-marginals") as error:
        prismfl.run("dp-fedavg", **clinic(tmp_path), sites=2, records=350, epsilon=2.0, out=str(tmp_path / "run"))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
