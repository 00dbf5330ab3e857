"""Times of several ways to do the same thing, taken in turns in one process, and the tables made of them.

On a shared machine a single time says little. Here every round runs each side once, one after the other, and a ratio
is the median over rounds of the ratio within a round, so that a busy minute slows both sides alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
RESULTS = Path(__file__).parent / "results"
Sides = Mapping[str, Callable[[], object]]


def alternated(sides: Sides, *, rounds: int, clock: Callable[[], float] = time.process_time) -> dict[str, list[float]]:
    """Seconds of each side in each round, after one round to warm up. CPU seconds unless another clock is given."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for done in range(rounds + 1):
        for name, side in sides.items():
            start = clock()
            side()
            if done:
                times[name].append(clock() - start)
    return times


def ratio(times: Mapping[str, Sequence[float]], side: str, base: str) -> float:
    return statistics.median(a / b for a, b in zip(times[side], times[base]))


def peak_of(side: Callable[[], object]) -> float:
    """MB by which memory rises at its highest while `side` runs (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak of the imports
    before = _memory("VmRSS")
    side()
    return (_memory("VmHWM") - before) / 1024


def _memory(field: str) -> int:
    """KB, from the kernel; getrusage would hand down the peak of the parent process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def whole_family() -> None:
    """From now on processes that a child leaves behind become ours, so that `children_cpu` misses none (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_cpu() -> float:
    """CPU seconds of all processes that were started and have ended; waits for those that still run."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_own_process(script: str, *arguments: str) -> Any:
    """What the script prints as JSON when started afresh."""
    command = [sys.executable, script, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_text(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def save(name: str, result: Mapping[str, Any]) -> None:
    """The result with what it was measured on, as `results/<name>.json`."""
    machine: dict[str, Any] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": [round(value, 1) for value in os.getloadavg()],
    }
    for package in ("torch", "opacus", "flwr", "ray"):
        with contextlib.suppress(PackageNotFoundError):
            machine[package] = version(package)
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine, **result}, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
