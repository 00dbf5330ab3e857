"""Whether a run is still at work: its process says so in the run directory, and how long the run has taken in all.

A process number alone says little: it is used again, and another machine has other ones. So the note names the place
(as a digest), the number and the moment the process began, and it is written again every few seconds. It is removed at
the end of the run; after a cut it stays, and its seconds are those that a resumed run goes on from.
"""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.files import inside as run_files
from prismfl.runs.directory import RunDirectory

NOTE = "pulse.json"
BEAT = 5.0  # seconds between two notes
SILENT = 60.0  # of another machine's run, after which it counts as cut off
SILENT_FILES = 600.0  # the same where there is no note: a federation's run, or one of an older version
MOST_SECONDS = 1e9
FINISHED, RUNNING, FAILED, CUT_OFF = "finished", "running", "failed", "cut off"
WRITTEN = ("run.json", "metrics.jsonl", "transcript.jsonl", "checkpoint/state.safetensors")


@dataclass(frozen=True)
class Standing:
    """How a run stands, as one may see it from outside: running, finished, failed or cut off, and after which round."""

    status: str
    done: int
    rounds: int

    def words(self, path: Path | str) -> str:
        """The same for people, with what to do."""
        if self.status in (FINISHED, RUNNING):
            return self.status if self.status == FINISHED else f"running, round {self.done} of {self.rounds} is done"
        return f"{self.status} after round {self.done} of {self.rounds}; go on: prismfl resume {path}"


def standing(run: RunDirectory) -> Standing:
    """How a run stands. One that says it is running but whose process is gone was cut off."""
    status = run.status
    if status == RUNNING and not _alive(run.path):
        status = CUT_OFF
    done = max((row["round"] for row in run.metrics()), default=0)
    try:
        rounds = int(run.read_json("config.json")["settings"]["rounds"])
    except (UserError, LookupError, TypeError, ValueError):
        rounds = max(done, 1)
    return Standing(status, done, rounds)


def at_work_elsewhere(run: RunDirectory) -> int | None:
    """The process on this machine, other than this one, that is at work on a run."""
    note = _note(run.path)
    number = note.get("pid")
    here = run.status == RUNNING and note.get("place") == _place() and number != os.getpid()
    return number if here and isinstance(number, int) and _began(number) == note.get("began") else None


def seconds_so_far(run: RunDirectory) -> float:
    """What the earlier parts of a run took together."""
    told = [row.get("seconds") for row in run.metrics()] + [_note(run.path).get("seconds")]
    return max((float(v) for v in told if isinstance(v, int | float) and 0 <= v < MOST_SECONDS), default=0.0)


@contextmanager
def beating(run: RunDirectory) -> Iterator[Callable[[], float]]:
    """Says that this process is at work, until it ends. Yields a clock: the seconds of this part and of all before."""
    before, started, ended = seconds_so_far(run), time.monotonic(), threading.Event()

    def clock() -> float:
        return round(before + time.monotonic() - started, 3)

    def say(**more: Any) -> None:
        run.write_json(NOTE, {"seconds": clock(), **more})

    me = {"place": _place(), "pid": os.getpid(), "began": _began(os.getpid())}

    def beat() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):  # a full disk stops the run, not the note about it
                say(**me)

    say(**me)
    thread = threading.Thread(target=beat, name="prismfl pulse", daemon=True)
    thread.start()
    try:
        yield clock
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):
            if run.status == FINISHED:
                (run.path / NOTE).unlink(missing_ok=True)
            else:
                say()  # nobody is at work any more


def _note(path: Path) -> dict[str, Any]:
    try:
        found = run_files.read_json(path, NOTE)
    except (OSError, UserError):
        return {}
    return found if isinstance(found, dict) else {}


def _alive(path: Path) -> bool:
    note = _note(path)
    if not note:
        newest = max((changed for name in WRITTEN if (changed := _changed(path / name))), default=0.0)
        return time.time() - newest < SILENT_FILES
    number = note.get("pid")
    if not isinstance(number, int):
        return False
    if note.get("place") == _place():
        return _began(number) is not None and _began(number) == note.get("began")
    return time.time() - _changed(path / NOTE) < SILENT


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _place() -> str:
    """This machine since it was started, and its process numbers, as a digest: a run directory names no machine."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _began(number: int) -> str | None:
    """When a process began, in the system's own words; None where there is none."""
    if not 0 < number < 2**31:
        return None
    try:
        after = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return None if after[0] in ("Z", "X") else after[19]
    except (OSError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:  # no /proc on this system: whether there is such a process is all that can be said
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"
