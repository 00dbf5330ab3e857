"""Whether a run is at work: dead processes, numbers used again, other machines; and seconds that add up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.runs import pulse, simulate
from prismfl.runs.directory import RunDirectory
from tests.runs.small import small_config


def run_at(path: Path, **note: Any) -> RunDirectory:
    run = RunDirectory.create(path, {"run": "x", "settings": {"rounds": 10}}, {})
    run.add_metrics({"round": 3, "seconds": 7.5})
    if note:
        run.write_json(pulse.NOTE, {"seconds": 9.0, "place": pulse._place(), **note})
    return run


def aged(run: RunDirectory, name: str, seconds: float) -> None:
    changed = (run.path / name).stat().st_mtime - seconds
    os.utime(run.path / name, (changed, changed))


def test_a_process_that_is_there_is_at_work(tmp_path: Path) -> None:
    run = run_at(tmp_path / "r", pid=os.getpid(), began=pulse._began(os.getpid()))
    assert pulse.standing(run).status == "running"


def test_a_process_that_is_gone_was_cut_off(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        began = pulse._began(gone.pid)
    run = run_at(tmp_path / "r", pid=gone.pid, began=began)
    assert pulse.standing(run) == pulse.Standing("cut off", 3, 10)
    assert pulse.standing(run).words("R") == "cut off after round 3 of 10; go on: prismfl resume R"


def test_a_number_that_another_process_has_now_is_not_alive(tmp_path: Path) -> None:
    run = run_at(tmp_path / "r", pid=os.getpid(), began="1")
    assert pulse.standing(run).status == "cut off"


@pytest.mark.parametrize(("age", "status"), [(1.0, "running"), (2 * pulse.SILENT, "cut off")])
def test_of_another_machine_only_its_note_speaks(tmp_path: Path, age: float, status: str) -> None:
    run = run_at(tmp_path / "r", pid=1, began="1", place="elsewhere")
    aged(run, pulse.NOTE, age)
    assert pulse.standing(run).status == status


@pytest.mark.parametrize(("age", "status"), [(1.0, "running"), (2 * pulse.SILENT_FILES, "cut off")])
def test_without_a_note_the_files_speak(tmp_path: Path, age: float, status: str) -> None:
    run = run_at(tmp_path / "r")
    for name in ("run.json", "metrics.jsonl"):
        aged(run, name, age)
    assert pulse.standing(run).status == status


@pytest.mark.parametrize("note", ["[]", "{", '{"pid": "x"}', '{"pid": -1, "seconds": 1e999}', '{"seconds": true}'])
def test_a_note_that_holds_other_things_stops_nobody(tmp_path: Path, note: str) -> None:
    run = run_at(tmp_path / "r")
    (run.path / pulse.NOTE).write_text(note)
    assert pulse.standing(run).status in ("running", "cut off")
    assert pulse.seconds_so_far(run) == 7.5


def test_seconds_are_those_of_all_parts(tmp_path: Path) -> None:
    run = run_at(tmp_path / "r", pid=1, began="1")
    with pulse.beating(run) as clock:
        assert 9.0 <= clock() < 60.0
        assert pulse.standing(run).status == "running"
    assert pulse.standing(run).status == "cut off", "nobody is at work any more"
    assert pulse.seconds_so_far(run) >= 9.0


def test_the_note_is_gone_when_the_run_is_finished(tmp_path: Path) -> None:
    run = run_at(tmp_path / "r")
    with pulse.beating(run):
        run.set_status("finished")
    assert not (run.path / pulse.NOTE).exists()


def test_a_resumed_run_counts_what_it_took_before(tmp_path: Path) -> None:
    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate.run(small_config(tmp_path / "r"), progress=kill)
    run = RunDirectory.open(tmp_path / "r")
    assert pulse.standing(run).status == "cut off"
    run.write_json(pulse.NOTE, {"seconds": 1000.0})
    assert simulate.resume(tmp_path / "r").seconds > 1000.0
    assert not (run.path / pulse.NOTE).exists()


def test_a_run_at_work_is_not_taken_over(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        run = run_at(tmp_path / "r", pid=other.pid, began=pulse._began(other.pid))
        with pytest.raises(UserError, match=f"still at work .process {other.pid}."):
            simulate.resume(run.path)
        other.communicate(b"\n")
