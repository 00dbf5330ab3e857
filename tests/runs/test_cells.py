"""The plan of a sweep and what its runs came to: means, intervals, and folders that are not what they should be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.runs.cells import (
    FAILED,
    FINISHED,
    PLAN,
    RESULTS,
    UNFINISHED,
    WAITING,
    CellState,
    SweepCell,
    SweepPlan,
    half_width,
    is_sweep,
    opened_cell,
    read_plan,
    rows_of,
    states_of,
)
from prismfl.runs.config import RunConfig
from tests.runs.small import small_config, small_run

ASKED = small_config(Path("x"), epsilon=None, seed=None).model_copy(update={"out": None})
CELLS = tuple(SweepCell(name=f"dp_seed{s}", method="dp-fedavg", epsilon=3.0, seed=s) for s in (1, 2))
SWEEP = SweepPlan(asked={"dp-fedavg": ASKED}, cells=CELLS)


def kept(folder: Path, plan: SweepPlan | dict[str, Any] = SWEEP) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / PLAN).write_text(json.dumps(plan) if isinstance(plan, dict) else plan.model_dump_json())
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("cells") / "run")


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert not is_sweep(tmp_path)
    assert read_plan(kept(tmp_path)) == SWEEP
    assert is_sweep(tmp_path)
    config = SWEEP.config(CELLS[1], tmp_path)
    assert (config.epsilon, config.seed, config.out) == (3.0, 2, str(tmp_path / "dp_seed2"))
    assert config.settings == ASKED.settings


PLAIN = json.loads(SWEEP.model_dump_json())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cells": [{**PLAIN["cells"][0], "name": "../../etc"}]}, "Bad value for 'cells.0.name'"),
        ({"cells": [{**PLAIN["cells"][0], "name": "/abs"}]}, "Bad value for 'cells.0.name'"),
        ({"cells": [{**PLAIN["cells"][0], "name": "a\n"}]}, "Bad value for 'cells.0.name'"),
        ({"cells": [{**PLAIN["cells"][0], "epsilon": -1}]}, "Bad value for 'cells.0.epsilon'"),
        ({"cells": [PLAIN["cells"][0]] * 2}, "is not as prismfl writes it"),
        ({"cells": [{**PLAIN["cells"][0], "method": "os:system"}]}, "is not as prismfl writes it"),
        ({"cells": []}, "Bad value for 'cells'"),
        ({"schema_version": 9}, "Bad value for 'schema_version'"),
        ({"more": 1}, "Unknown key 'more'"),
    ],
)
def test_a_plan_from_anybody_is_checked(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        read_plan(kept(tmp_path, {**PLAIN, **change}))


def test_what_is_no_sweep_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no sweep"):
        read_plan(tmp_path)
    (tmp_path / PLAN).write_text("[]")
    with pytest.raises(UserError, match="is not a JSON object"):
        read_plan(tmp_path)


def test_runs_are_finished_waiting_unfinished_or_failed(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, kept(tmp_path) / "dp_seed1")
    assert [state.status for state in states_of(tmp_path, SWEEP)] == [FINISHED, WAITING]
    (tmp_path / "dp_seed1" / "run.json").write_text('{"schema_version": 2, "status": "running"}')
    told = {"cells": [{"name": "dp_seed2", "status": "failed", "reason": "No room."}]}
    (tmp_path / RESULTS).write_text(json.dumps(told))
    states = states_of(tmp_path, SWEEP)
    assert [(state.status, state.reason) for state in states] == [(UNFINISHED, None), (FAILED, "No room.")]
    (tmp_path / RESULTS).write_text('{"cells": 3}')
    assert states_of(tmp_path, SWEEP)[1].status == WAITING


def test_another_run_in_a_cells_folder_is_not_taken_for_it(run: Path, tmp_path: Path) -> None:
    """Not even another method's, which going on would import."""
    shutil.copytree(run, kept(tmp_path) / "dp_seed2")
    state = states_of(tmp_path, SWEEP)[1]
    assert state.status == FAILED
    assert state.reason is not None
    assert "another run than the sweep's (seed 1, not 2)" in state.reason
    stored = json.loads((tmp_path / "dp_seed2" / "config.json").read_text())
    (tmp_path / "dp_seed2" / "config.json").write_text(json.dumps({**stored, "method": "os:system"}))
    with pytest.raises(UserError, match="method os:system, not dp-fedavg"):
        opened_cell(tmp_path / "dp_seed2", SWEEP.config(CELLS[1], tmp_path))


def test_a_link_out_of_the_folder_is_no_cell(run: Path, tmp_path: Path) -> None:
    (kept(tmp_path) / "dp_seed1").symlink_to(run)
    state = states_of(tmp_path, SWEEP)[0]
    assert (state.status, state.result) == (FAILED, None)


def result(accuracy: float | None, **more: Any) -> dict[str, Any]:
    plain = {"accuracy": accuracy, "epsilon": 2.9, "epsilon_total": 2.9, "bytes_up": 100, "bytes_down": 20}
    return {**plain, "guarantee": "none", "seconds": 2.0, "encoder": None, **more}


def state(seed: int, accuracy: float | None, **more: Any) -> CellState:
    cell = SweepCell(name=f"a{seed}", method="prism", epsilon=3.0, seed=seed)
    return CellState(cell, FINISHED, result=result(accuracy, **more))


def test_a_row_has_the_mean_and_the_interval_by_students_t() -> None:
    """Three seeds: 4.3027 s / sqrt(3). A normal interval, or the spread of one run, is another number."""
    (row,) = rows_of([state(0, 80.0), state(1, 82.0), state(2, 87.0)])
    assert (row["accuracy"], row["seeds"], row["seeds_planned"]) == (83.0, 3, 3)
    assert row["accuracy_sd"] == pytest.approx(13.0**0.5, abs=1e-3)
    assert row["accuracy_half_width"] == pytest.approx(4.302653 * 13.0**0.5 / 3**0.5, abs=1e-3)
    assert (row["bytes"], row["seconds"], row["epsilon"]) == (120, 2.0, 2.9)


def test_one_seed_has_no_interval() -> None:
    (row,) = rows_of([state(0, 80.0), CellState(state(1, 1.0).cell, FAILED, "No room.")])
    assert (row["accuracy_half_width"], row["seeds"], row["seeds_planned"], row["failed"]) == (None, 1, 2, 1)
    assert half_width([5.0]) is None
    assert half_width([5.0, 5.0]) == 0.0


def test_a_row_without_a_finished_run_has_no_figures() -> None:
    (row,) = rows_of([CellState(state(0, 1.0).cell, WAITING)])
    assert (row["epsilon_asked"], row["seeds"]) == (3.0, 0)
    assert "accuracy" not in row


def test_scores_are_those_of_the_recommended_model() -> None:
    models = {"head": {"balanced_accuracy": 70.0, "auc": None}, "images": {"balanced_accuracy": 10.0, "auc": 20.0}}
    (row,) = rows_of([state(0, 70.0, models=models, recommended="head")])
    assert (row["balanced_accuracy"], row["auc"]) == (70.0, None)
    (row,) = rows_of([state(0, 70.0, models={"head": "no scores"}, recommended="head")])
    assert row["balanced_accuracy"] is None


def test_methods_encoders_and_epsilons_are_rows_and_sides_of_an_encoder_too() -> None:
    sides = [SweepCell(name=f"b{n}", method="prism", epsilon=1.0, encoder=f"net@{n}", seed=0) for n in (64, 128)]
    rows = rows_of([CellState(cell, FINISHED, result=result(50.0, encoder="net")) for cell in sides])
    assert [row["encoder"] for row in rows] == ["net@64", "net@128"]
    auto = SweepCell(name="c", method="prism", epsilon=1.0, encoder="auto", seed=0)
    assert rows_of([CellState(auto, FINISHED, result=result(50.0, encoder="net"))])[0]["encoder"] == "net"


def test_a_model_without_a_guarantee_makes_the_total_endless() -> None:
    (row,) = rows_of([state(0, 1.0), state(1, 1.0, epsilon_total=None)])
    assert row["epsilon_total"] is None


def test_the_config_of_a_plan_is_whole() -> None:
    assert set(PLAIN["asked"]["dp-fedavg"]) == set(RunConfig.model_fields)
