"""A run killed at any point ends with the same bytes and not one charge more. Real processes, real SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.directory import RunDirectory
from prismfl.runs.simulate import resume

ARGS = [
    "run", "-m", "dp-fedavg", "-d", "digits", "--model", "logreg", "--sites", "3", "-e", "4", "--set", "rounds=4",
    "--set", "steps=2", "--format", "json",
]  # fmt: skip


def start(out: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "prismfl", *ARGS, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)


def kill_after(out: Path, releases: int) -> None:
    """Kill the run as soon as so many messages have crossed."""
    with start(out) as process:
        while process.poll() is None:
            done = (out / "transcript.jsonl").read_text().count('"up"') if (out / "transcript.jsonl").exists() else 0
            if done >= releases:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)


def charges(out: Path) -> list[tuple[str, str]]:
    with Ledger.open(out / "ledger" / "ledger.sqlite", create=False) as ledger:
        return sorted((c.release, c.digest) for c in ledger.charges())


@pytest.mark.processes
def test_killed_runs_end_with_the_same_bytes_and_charges(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole")
    result = json.loads(whole.communicate(timeout=240)[0])
    expected = charges(tmp_path / "whole")
    assert len(expected) == 12
    killed = 0
    for i, releases in enumerate((1, 5)):
        out = tmp_path / f"killed-{i}"
        kill_after(out, releases)
        killed += RunDirectory.open(out).status == "running"
        again = resume(out)
        assert again.digest == result["digest"]
        assert again.epsilon == result["epsilon"]
        assert (again.bytes_up, again.bytes_down) == (result["bytes_up"], result["bytes_down"])
        assert charges(out) == expected
        assert resume(out) == again
    assert killed >= 1, "every run ended before it could be killed: the test shows nothing"


@pytest.mark.processes
def test_ctrl_c_ends_all_processes_says_how_to_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole")
    result = json.loads(whole.communicate(timeout=240)[0])
    out = tmp_path / "cut"
    command = [sys.executable, "-m", "prismfl", *ARGS, "--workers", "2", "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while process.poll() is None and not (out / "transcript.jsonl").exists():
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGINT)
        words = process.communicate(timeout=240)[1]  # ends when the last process that could write has ended
    assert process.returncode == 130, words
    assert "Interrupted. What was done is kept; go on with: prismfl resume RUN" in words
    assert resume(out).digest == result["digest"]
    assert charges(out) == charges(tmp_path / "whole")


def cut_off(tmp_path: Path) -> RunDirectory:
    """A finished run, made to look as if it had been killed before its last word."""
    out = tmp_path / "run"
    start(out).communicate(timeout=240)
    directory = RunDirectory.open(out)
    directory.set_status("running")
    return directory


def test_damaged_checkpoints_fall_back_or_refuse_but_never_start_anew(tmp_path: Path) -> None:
    directory = cut_off(tmp_path)
    expected = directory.read_json("result.json")["digest"]
    newest = directory.path / "checkpoint" / "state.safetensors"
    previous = directory.path / "checkpoint" / "state.previous.safetensors"
    raw = newest.read_bytes()
    newest.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    state = directory.load_state()
    assert state is not None
    assert state.round == 3
    newest.write_bytes(raw[: len(raw) // 2])
    state = directory.load_state()
    assert state is not None
    assert state.round == 3
    previous.write_bytes(b"")
    with pytest.raises(UserError, match="damaged"):
        directory.load_state()
    newest.write_bytes(raw)
    assert resume(directory.path).digest == expected
