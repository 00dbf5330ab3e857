"""A sweep: its runs are those of `run`, it goes on where it stopped, and says what own records pay."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismfl.errors import UserError
from prismfl.runs import simulate, sweep
from prismfl.runs.cells import FAILED, FINISHED, RESULTS, read_plan
from prismfl.runs.directory import RunDirectory
from prismfl.runs.sweep import Axes, costs_of, go, listed, planned, price_words
from tests.runs.small import small_config

GIVEN = {"data": "digits", "model": "logreg", "sites": 2}
SETS = ("subset=200", "rounds=1", "batch=32", "dp-fedavg.steps=2", "epochs=1")
BOTH = Axes(("dp-fedavg", "fedavg"), (3.0,), (0, 1))


def plan(folder: Path, axes: Axes = BOTH, *, sets: tuple[str, ...] = SETS, **given: Any) -> sweep.Sweep:
    return planned(folder, axes, sets=sets, given={**GIVEN, **given})


def alone(folder: Path, seeds: tuple[int, ...] = (0,), **given: Any) -> sweep.Sweep:
    """One quick method without a guarantee."""
    return plan(folder, Axes(("fedavg",), (), seeds), sets=("subset=200", "rounds=1", "epochs=1"), **given)


def names(axes: Axes, folder: Path, **given: Any) -> list[str]:
    return [cell.name for cell in plan(folder, axes, sets=(), **given).plan.cells]


def test_the_runs_are_methods_times_encoders_times_epsilons_times_seeds(tmp_path: Path) -> None:
    """Without a guarantee a method runs once a seed, and without a use for encoders once for all of them."""
    axes = Axes(("prism-head", "dp-fedavg", "fedavg", "local-only"), (0.5, 1), (0, 3), ("none", "auto"))
    found = names(axes, tmp_path / "s")
    assert len(found) == 8 + 4 + 2 + 2
    assert found[:3] == ["prism-head_none_eps0.5_seed0", "prism-head_none_eps0.5_seed3", "prism-head_none_eps1_seed0"]
    assert found[-4:] == ["fedavg_seed0", "fedavg_seed3", "local-only_seed0", "local-only_seed3"]


def test_an_axis_that_is_not_given_is_what_the_config_says(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('method = "dp-fedavg"\ndata = "digits"\nepsilon = 2.0\nseed = 7\n[settings]\nrounds = 1\n')
    cells = planned(tmp_path / "s", Axes(), file=file, given={}).plan.cells
    assert [cell.name for cell in cells] == ["dp-fedavg_eps2_seed7"]


def test_a_setting_goes_to_the_methods_that_have_it(tmp_path: Path) -> None:
    asked = plan(tmp_path / "s").plan.asked
    assert asked["dp-fedavg"].settings == {"rounds": 1, "batch": 32, "steps": 2}
    assert asked["fedavg"].settings == {"rounds": 1, "batch": 32, "epochs": 1}
    assert asked["fedavg"].subset == 200


@pytest.mark.parametrize(
    ("axes", "sets", "line"),
    [
        (BOTH, ("roundz=1",), "No method of the sweep has a setting 'roundz'; did you mean 'rounds'?"),
        (BOTH, ("dp-fedavg.epochz=1",), "Unknown key 'epochz' in the settings of dp-fedavg; known: "),
        (BOTH, ("psg.rounds=1",), "Unknown key 'psg' in the command line; "),
        (Axes(("dp-fedavgg",), (1.0,)), (), "Unknown method 'dp-fedavgg' (--method); did you mean 'dp-fedavg'?"),
        (Axes(("dp-fedavg",), (1.0, -2.0)), (), "Expected --epsilon > 0, got -2."),
        (Axes(("dp-fedavg",), (float("inf"),)), (), "Expected --epsilon > 0, got inf."),
        (Axes(("dp-fedavg",)), (), "Method 'dp-fedavg' needs a privacy budget: give --epsilon"),
        (Axes(("dp-fedavg",), (1.0, 1.0000001)), (), "Expected at most 10000 runs with a name each, got 'dp-fedavg_"),
        (Axes(("prism-head",), (1.0,), (), ("efficientnet",)), (), "Unknown encoder 'efficientnet'; did you mean "),
        (Axes(("dp-fedavg",), (1.0,)), ("sigma=2",), "Give --epsilon or sigma, not both"),
    ],
)
def test_what_cannot_be_is_found_before_anything_is_made(
    axes: Axes, sets: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        plan(tmp_path / "s", axes, sets=sets)
    assert str(error.value).startswith(line)
    assert not (tmp_path / "s").exists()


def test_values_with_commas() -> None:
    assert listed("0.2, 1,5,1", float, "--epsilon") == (0.2, 1.0, 5.0)
    assert listed(None, int, "--seeds") == ()
    with pytest.raises(UserError, match="Expected --seeds as values with commas between them, got '1;2'"):
        listed("1;2", int, "--seeds")


def test_a_cell_is_the_run_that_run_would_make(tmp_path: Path) -> None:
    axes, sets = Axes(("dp-fedavg",), (3.0,), (1,)), ("subset=200", "rounds=2", "steps=2", "batch=32")
    told: list[str] = []
    (state,) = go(plan(tmp_path / "s", axes, sets=sets), tell=told.append)
    alone = simulate.run(small_config(tmp_path / "alone"))
    assert state.result is not None
    assert state.result["digest"] == alone.digest
    assert told == ["run 1 of 1: dp-fedavg_eps3_seed1"]
    kept = json.loads((tmp_path / "s" / RESULTS).read_text())
    assert kept["rows"][0]["accuracy"] == alone.accuracy
    assert [cell["status"] for cell in kept["cells"]] == [FINISHED]


def stamps(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}


def test_stopped_anywhere_it_goes_on_with_the_same_command(tmp_path: Path) -> None:
    whole = go(plan(tmp_path / "whole"))
    seen = 0

    def stop(what: str, done: int, total: int) -> None:
        nonlocal seen
        seen += what.startswith("2 of 4")
        if seen > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(plan(tmp_path / "cut"), progress=stop)
    assert RunDirectory.open(tmp_path / "cut" / "dp-fedavg_eps3_seed1").status == "running"
    before, told = stamps(tmp_path / "cut"), list[str]()
    assert list(before) == ["dp-fedavg_eps3_seed0"]
    states = go(plan(tmp_path / "cut"), tell=told.append)
    digests = [[s.result["digest"] for s in found if s.result] for found in (whole, states)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 4
    assert stamps(tmp_path / "cut")["dp-fedavg_eps3_seed0"] == before["dp-fedavg_eps3_seed0"], "a finished run is kept"
    assert re.fullmatch(r"run 2 of 4: dp-fedavg_eps3_seed1 \(about \d+ s left\)", told[0])


def test_another_command_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    go(alone(tmp_path / "s"))
    with pytest.raises(UserError, match=r"holds another sweep \(sites 2 there, 3 here\); choose another --out"):
        alone(tmp_path / "s", sites=3)
    with pytest.raises(UserError, match="its runs are others: 'fedavg_seed1'"):
        alone(tmp_path / "s", (0, 1))
    alone(tmp_path / "s")


def test_a_folder_with_other_things_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="exists and holds no sweep"):
        plan(tmp_path)
    with pytest.raises(UserError, match="exists and holds no sweep"):
        plan(tmp_path / "letter.txt")


def test_one_sweep_at_a_time_in_a_folder(tmp_path: Path) -> None:
    asked, refusals = alone(tmp_path / "s"), list[str]()

    def again(*_: Any) -> None:
        with pytest.raises(UserError) as error:
            go(asked)
        refusals.append(str(error.value))

    go(asked, progress=again)
    assert refusals[0].startswith("Another sweep is at work in ")


def test_a_run_that_fails_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    """Something else lies in a cell's folder; once it is away, the same command makes the run."""
    asked, warned = plan(tmp_path / "s"), list[str]()
    (tmp_path / "s" / "dp-fedavg_eps3_seed0").mkdir(parents=True)
    (tmp_path / "s" / "dp-fedavg_eps3_seed0" / "letter.txt").write_text("dear")
    states = go(asked, warn=warned.append)
    assert [state.status for state in states] == [FAILED, FINISHED, FINISHED, FINISHED]
    assert "is not a run directory" in (states[0].reason or "")
    assert any(line.startswith("dp-fedavg_eps3_seed0 failed: ") for line in warned)
    told = json.loads((tmp_path / "s" / RESULTS).read_text())
    assert told["cells"][0]["reason"] == states[0].reason
    assert (tmp_path / "s" / "dp-fedavg_eps3_seed0" / "letter.txt").exists()
    (tmp_path / "s" / "dp-fedavg_eps3_seed0" / "letter.txt").unlink()
    assert [state.status for state in go(plan(tmp_path / "s"))] == [FINISHED] * 4


def test_a_method_that_breaks_does_not_stop_the_others(tmp_path: Path) -> None:
    def broken(what: str, done: int, total: int) -> None:
        if what.startswith("1 of"):
            raise RuntimeError("linalg.eigh:\n no convergence")

    states = go(alone(tmp_path / "s", (0, 1)), progress=broken)
    assert [state.status for state in states] == [FAILED, FINISHED]
    assert states[0].reason == "RuntimeError: linalg.eigh: no convergence"


def test_a_full_disk_ends_the_sweep(tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        go(alone(tmp_path / "s"), progress=full)


def test_a_run_that_was_never_written_down_begins_anew(tmp_path: Path) -> None:
    asked = alone(tmp_path / "s")
    (tmp_path / "s" / "fedavg_seed0").mkdir(parents=True)
    (tmp_path / "s" / "fedavg_seed0" / "run.json").write_text('{"schema_version": 2, "status": "running"}')
    assert [state.status for state in go(asked)] == [FINISHED]


def own_data(folder: Path) -> Path:
    values = np.random.default_rng(0)
    x, y = values.integers(0, 255, (60, 8, 8), dtype=np.uint8), values.integers(0, 2, 60)
    np.savez(folder / "own.npz", x=x, y=y)
    return folder / "own.npz"


OWN_SETS = ("records=24", "classes=['0', '1']", "image_size=8", "channels=1", "rounds=1", "steps=1", "batch=8")


def test_own_records_pay_for_every_run_and_the_sum_is_said(tmp_path: Path) -> None:
    axes = Axes(("dp-fedavg",), (1.0, 2.0), (0, 1))
    asked = plan(tmp_path / "s", axes, sets=OWN_SETS, data=str(own_data(tmp_path)))
    words = price_words(asked)
    assert words is not None
    total = float(re.findall(r"epsilon about ([\d.]+) per record", words)[0])
    assert words.startswith("4 runs on your own records add up: ")
    assert 2.0 < total < 6.0, "more than the dearest run, less than the plain sum"
    assert len(costs_of(asked, asked.plan.cells)) == 1
    states = go(asked)
    assert [state.status for state in states] == [FINISHED] * 4, [state.reason for state in states]
    last = states[-1].result
    assert last is not None
    assert last["noise"].startswith("operating"), "a seed of the sweep is none of the noise"
    (spent,) = last["spent_so_far"]["by_unit"].values()
    assert spent == pytest.approx(total, rel=0.02), "the ledger has what was said"
    assert price_words(plan(tmp_path / "s", axes, sets=OWN_SETS, data=str(tmp_path / "own.npz"))) is None
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0


def test_without_a_guarantee_own_records_get_none(tmp_path: Path) -> None:
    sets = tuple(line for line in OWN_SETS if not line.startswith("steps"))
    asked = plan(tmp_path / "s", Axes(("fedavg",)), sets=sets, data=str(own_data(tmp_path)))
    assert "no guarantee at all per record" in (price_words(asked) or "")


def test_the_ledger_refuses_what_the_cap_does_not_allow_and_the_rest_goes_on(tmp_path: Path) -> None:
    axes = Axes(("dp-fedavg",), (2.0, 0.5), (0,))
    data = str(own_data(tmp_path))
    states = go(plan(tmp_path / "s", axes, sets=OWN_SETS, data=data, cap=1.0))
    assert [state.status for state in states] == [FAILED, FINISHED]
    assert "cap" in (states[0].reason or "")


def test_nobody_pays_on_a_benchmark(tmp_path: Path) -> None:
    asked = plan(tmp_path / "s")
    assert price_words(asked) is None
    assert asked.plan.asked["dp-fedavg"].noise is None


def test_the_plan_is_kept_beside_the_runs(tmp_path: Path) -> None:
    asked = alone(tmp_path / "s")
    go(asked)
    assert read_plan(tmp_path / "s") == asked.plan


def test_going_on_imports_no_code_that_a_cells_folder_names(tmp_path: Path) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError

    go(alone(tmp_path / "s"), progress=broken)
    place = tmp_path / "s" / "fedavg_seed0" / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "method": "not.there:METHOD"}))
    (state,) = go(alone(tmp_path / "s"))
    assert "holds another run than the sweep's (method not.there:METHOD, not fedavg)" in (state.reason or "")
