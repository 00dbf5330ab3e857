"""A whole run in one process: refused before anything is made, the same twice, taken up after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import LEDGER_FILE
from prismfl.report.facts import collect
from prismfl.runs import simulate
from prismfl.runs.directory import RunDirectory
from prismfl.runs.opened import open_run
from tests.runs.small import small_config, small_run


def test_a_run_leaves_a_whole_directory(tmp_path: Path) -> None:
    result = simulate.run(small_config(tmp_path / "r"))
    run = RunDirectory.open(tmp_path / "r")
    assert run.status == "finished"
    assert run.read_json("result.json") == result.as_dict()
    assert [row["round"] for row in run.metrics()] == [1, 2]
    assert {(m.round, m.site, m.direction) for m in run.messages()} == {
        (r, s, d) for r in (0, 1) for s in ("site-0", "site-1") for d in ("up", "down")
    }


def test_without_a_transcript_the_ledger_is_still_the_evidence(tmp_path: Path) -> None:
    """What is lost is the list of what crossed; who was charged for which bytes is not, nor how much crossed."""
    kept, bare = (simulate.run(small_config(tmp_path / k, transcript=k)) for k in ("digests", "none"))
    run = RunDirectory.open(tmp_path / "none")
    assert run.messages() == []
    assert not (run.path / "transcript.jsonl").exists()
    assert not (run.path / "transcript").exists()
    assert (bare.digest, bare.bytes_up, bare.bytes_down) == (kept.digest, kept.bytes_up, kept.bytes_down)
    with Ledger.open(run.path / "ledger" / LEDGER_FILE, create=False) as ledger:
        charges = ledger.charges(run=str(run.read_json("config.json")["run"]))
        assert ledger.verify()
    assert len({charge.release for charge in charges}) == len({charge.digest for charge in charges}) == 4
    facts = collect(run.path)
    assert [row["up"] for row in facts["traffic"]["rounds"]] == [bare.bytes_up // 2] * 2
    assert "transcript" in {row["what"] for row in facts["missing"]}
    with pytest.raises(UserError, match="kept no message"):
        open_run(run.path).release("site-0", 0)


def test_the_seed_makes_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    one, again, other = (simulate.run(small_config(tmp_path / str(i), seed=s)).digest for i, s in enumerate((1, 1, 2)))
    assert one == again != other


def test_a_run_that_is_finished_just_reports(tmp_path: Path) -> None:
    first = simulate.run(small_config(tmp_path / "r"))
    assert simulate.resume(tmp_path / "r") == first


def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = simulate.run(small_config(tmp_path / "whole"))

    class Killed(Exception):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        simulate.run(small_config(tmp_path / "cut"), progress=kill)
    assert RunDirectory.open(tmp_path / "cut").status == "running"
    assert simulate.resume(tmp_path / "cut").digest == whole.digest


def test_a_run_may_start_from_the_model_of_another(tmp_path: Path) -> None:
    small_run(tmp_path / "first")
    said: list[str] = []
    second = simulate.run(small_config(tmp_path / "second", start=str(tmp_path / "first")), warn=said.append)
    assert second.epsilon is not None
    assert second.epsilon_total is not None
    assert second.epsilon_total > second.epsilon
    assert any(line.startswith("the model to start from cost epsilon ") for line in said)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"method": "fedavgg"}, "Unknown method 'fedavgg' (--method); did you mean "),
        ({"epsilon": -1.0}, "Expected epsilon > 0 (--epsilon), got -1.0."),
        ({"epsilon": None}, "Method 'dp-fedavg' needs a privacy budget: give --epsilon (say 1.0) or --set sigma=1.0."),
        ({"model": "resnet"}, "Unknown model 'resnet'; choose one of "),
        ({"split": "iidd"}, "Unknown split 'iidd'; did you mean 'iid'?"),
        ({"settings": {"stepps": 2}}, "Unknown key 'stepps' in the settings of dp-fedavg; did you mean 'steps'?"),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_made(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        simulate.run(small_config(tmp_path / "r", **changes))
    assert str(error.value).startswith(line)
    assert not (tmp_path / "r").exists()


def test_a_start_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "first", {}, {})
    with pytest.raises(UserError) as error:
        simulate.run(small_config(tmp_path / "r", start=str(tmp_path / "first")))
    assert str(error.value).endswith("has no finished model for 'dp-fedavg' to start from.")
    assert not (tmp_path / "r").exists()
