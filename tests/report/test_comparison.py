"""One table over several runs: seeds become one row, best first, own figures stay on site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.report.comparison import compare_runs, comparison_table, comparison_tables, runs_in, unfinished_runs
from prismfl.report.words import NO_PROTECTION
from prismfl.runs.directory import RunDirectory


def finished(path: Path, **changes: Any) -> Path:
    config = {"data": "digits", "noise": "operating-system"}
    run = RunDirectory.create(path, config, {})
    result: dict[str, Any] = {
        "method": "dp-fedavg",
        "data": "digits",
        "split": "iid",
        "sites": 3,
        "model": "logreg",
        "guarantee": "differential privacy",
        "delta": 1e-5,
        "unit": "record",
        "relation": "add-remove",
        "rounds": 2,
        "epsilon": 1.0,
        "accuracy": 80.0,
        "seconds": 2.0,
        "bytes_up": 100,
        "bytes_down": 50,
        "noise": "operating system",
    }
    run.write_json("result.json", {**result, **changes})
    run.set_status("finished")
    return path


def test_seeds_of_one_setting_are_one_row(tmp_path: Path) -> None:
    paths = [finished(tmp_path / str(i), accuracy=a) for i, a in enumerate((70.0, 80.0, 90.0))]
    (row,) = compare_runs(paths)
    assert (row["accuracy"], row["accuracy_std"], row["seeds"]) == (80.0, 10.0, 3)
    assert row["bytes"] == 150
    assert row["leaves"] == "model"


def test_other_settings_are_other_rows_best_first(tmp_path: Path) -> None:
    paths = [
        finished(tmp_path / "a", accuracy=70.0),
        finished(tmp_path / "b", accuracy=90.0, epsilon=4.0),
        finished(tmp_path / "c", accuracy=80.0, method="prism"),
    ]
    assert [row["accuracy"] for row in compare_runs(paths)] == [90.0, 80.0, 70.0]


def test_unlike_data_and_units_have_a_table_each(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"data": "mnist-5k"}, {"unit": "client"}, {"method": "prism"}, {"delta": 1e-6}]
    rows = compare_runs([finished(tmp_path / str(i), **more) for i, more in enumerate(changes)])
    assert sorted(len(table.rows) for table in comparison_tables(rows)) == [1, 1, 1, 2]
    assert comparison_tables([]) == []


def test_a_folder_means_the_runs_below_it(tmp_path: Path) -> None:
    paths = [finished(tmp_path / "runs" / name) for name in ("a/one", "b")]
    (tmp_path / "runs" / "report.html").write_text("")
    assert runs_in([tmp_path / "runs"]) == paths
    assert runs_in([*paths, tmp_path / "runs" / "report.html", paths[0]]) == paths
    for wrong in (tmp_path / "runs" / "typo", tmp_path / "runs" / "a" / "one" / "gen"):
        assert runs_in([*paths, wrong]) == [*paths, wrong], "a slip is told, not left out"
    assert runs_in([tmp_path / "runs" / "report.html"]) == [tmp_path / "runs" / "report.html"]


def test_the_worst_epsilon_of_a_row_is_shown(tmp_path: Path) -> None:
    paths = [finished(tmp_path / "a", epsilon=1.001), finished(tmp_path / "b", epsilon=1.004)]
    (row,) = compare_runs(paths)
    assert row["epsilon"] == 1.004


def test_seeded_runs_are_marked(tmp_path: Path) -> None:
    (row,) = compare_runs([finished(tmp_path / "a", noise="seeded: simulation only")])
    assert row["guarantee"] == NO_PROTECTION
    table = comparison_table([row])
    assert table.caption == f"* {NO_PROTECTION} (the noise was seeded)"


def test_a_run_that_is_not_finished_is_listed_beside_the_others(tmp_path: Path) -> None:
    whole, cut = finished(tmp_path / "a"), finished(tmp_path / "b")
    RunDirectory(cut).set_status("running")
    RunDirectory(cut).write_json("pulse.json", {"seconds": 3.0})
    (row,) = compare_runs([whole, cut])
    assert row["seeds"] == 1
    (left,) = unfinished_runs([whole, cut])
    assert left["status"] == "cut off"
    assert left["words"].endswith(f"go on: prismfl resume {cut}")


def test_a_run_that_lost_its_result_is_listed_too(tmp_path: Path) -> None:
    whole, broken = finished(tmp_path / "a"), finished(tmp_path / "b")
    (broken / "result.json").unlink()
    assert len(compare_runs([whole, broken])) == 1
    assert [run["status"] for run in unfinished_runs([whole, broken])] == ["unreadable"]


def test_a_folder_that_is_no_run_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run directory"):
        compare_runs([tmp_path])


def test_a_rare_class_brings_its_own_column(tmp_path: Path) -> None:
    scores = {"balanced_accuracy": 61.0, "auc": 77.0, "unbalanced": True, "recall": [99.0, 23.0]}
    asked = {"models": {"head": scores}, "recommended": "head"}
    rows = compare_runs([finished(tmp_path / "a", **asked)])
    assert (rows[0]["balanced_accuracy"], rows[0]["auc"]) == (61.0, 77.0)
    heads = [str(column.header) for column in comparison_table(rows).columns]
    assert heads[3:6] == ["accuracy", "balanced accuracy", "AUC"]
    (own,) = compare_runs([finished(tmp_path / "own", own_data=True, **asked)])
    assert (own["balanced_accuracy"], own["auc"], own["fitting"]) == (None, None, []), "own figures stay on site"


def test_figures_on_own_records_are_there_on_site_only(tmp_path: Path) -> None:
    path = finished(tmp_path / "a", own_data=True, data="/home/me/mine.csv")
    (shared,) = compare_runs([path])
    assert shared["accuracy"] is None
    assert shared["data"] == "mine.csv"
    (own,) = compare_runs([path], on_site=True)
    assert own["accuracy"] == 80.0
    assert str(comparison_table([own]).title).startswith("On-site edition, stays on this site. ")
    assert "†" in str(comparison_table([shared]).caption)


ENCODED: dict[str, Any] = {"method": "prism-head", "encoder": "efficientnet-lite0", "pretrained_on": "ImageNet-1k"}


def test_runs_with_a_pretrained_encoder_are_kept_apart(tmp_path: Path) -> None:
    """They know more than the run's data: they stand below the others, however good they are, and say what they saw."""
    rows = compare_runs(
        [
            finished(tmp_path / "a", accuracy=99.0, **ENCODED),
            finished(tmp_path / "b", accuracy=70.0, method="prism-head"),
            finished(tmp_path / "c", accuracy=80.0, method="prism-head", encoder="scattering"),
        ]
    )
    assert [(row["encoder"], row["accuracy"]) for row in rows] == [
        ("scattering", 80.0), (None, 70.0), ("efficientnet-lite0", 99.0),
    ]  # fmt: skip
    table = comparison_table(rows)
    assert [column.header for column in table.columns][:2] == ["method", "encoder"]
    assert list(table.columns[1].cells) == ["scattering", "-", "efficientnet-lite0 (pretrained)"]
    assert [row.end_section for row in table.rows] == [False, True, False]
    assert table.caption == "public encoder: efficientnet-lite0, trained on ImageNet-1k"


def test_seeds_with_and_without_an_encoder_are_never_one_row(tmp_path: Path) -> None:
    paths = [finished(tmp_path / "a", method="prism-head"), finished(tmp_path / "b", **ENCODED)]
    assert [row["seeds"] for row in compare_runs(paths)] == [1, 1]
    other = {**ENCODED, "pretrained_on": "another set"}
    assert len(compare_runs([*paths, finished(tmp_path / "c", **other)])) == 3


def test_without_encoders_the_table_has_no_column_for_them(tmp_path: Path) -> None:
    table = comparison_table(compare_runs([finished(tmp_path / "a")]))
    assert "encoder" not in [column.header for column in table.columns]
    odd = compare_runs([finished(tmp_path / "b", encoder=["x"], pretrained_on={"a": 1})])
    assert len(odd) == 1, "a folder may hold anything"
