"""A run's synthetic table is judged on held-out records, where there are both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import prismfl
from prismfl.core.job import Job
from prismfl.core.payloads import SyntheticSet
from prismfl.core.task import Task
from prismfl.data import load
from prismfl.methods import METHODS
from prismfl.methods.generators.marginals import Config
from prismfl.metrics.judged import BOOSTED, LOGISTIC
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
