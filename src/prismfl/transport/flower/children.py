"""Child processes: quiet, dying with their parent, and found again by their pid files. Light to import."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from prismfl.errors import PrismError, UserError
from prismfl.transport.flower.guard import die_with_parent, quiet_environment

STOP_SECONDS = 5.0
"""Flower's processes may wait in a retry for as long as they like; they hold nothing that must be saved."""


class ProcessError(PrismError):
    """A process of the federation did not start, or died."""

    code = "process"


def is_running(pid: int) -> bool:
    """Whether a process of this number exists and is no zombie, where /proc can tell."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        if Path("/proc/self").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"


def pid_of(path: Path) -> int | None:
    """The running process that a pid file names."""
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return None
    return pid if is_running(pid) else None


def split_address(address: str) -> tuple[str, int]:
    """The host (without brackets) and the port of HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"Expected a server as HOST:PORT, got '{address}'.")
    return host.strip("[]"), int(port)


def environment(home: Path) -> dict[str, str]:
    """The quiet environment of Flower's processes, with this Python's folder first on the path."""
    found = quiet_environment(str(home))
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found.get('PATH', '')}"
    return found


def guarded(function: str) -> list[str]:
    """The command that runs a function of `guard` in a new Python."""
    return [sys.executable, "-c", f"from prismfl.transport.flower.guard import {function}; {function}()"]


def beside_python(command: str) -> str:
    """The path of a command that is installed beside this Python."""
    path = Path(sys.executable).parent / command
    if not path.exists():
        raise UserError(f"Flower is not installed ({command} is missing): pip install 'prismfl[flower]'.")
    return str(path)


def spawn(command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a child without input that writes into `log` and dies with its parent."""
    return subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )


def wait(process: subprocess.Popen[bytes], *meanwhile: Callable[[], None]) -> int | None:
    """The child's exit code, or None when we were asked to stop (the child is then stopped as well). What is to be done
    `meanwhile` is done a few times a second."""
    stopped = False

    def stop(signum: int, frame: object) -> None:
        nonlocal stopped
        stopped = True

    before = {s: signal.signal(s, stop) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not stopped and process.poll() is None:
            for look in meanwhile:
                look()
            time.sleep(0.2)
        if stopped:
            end(process)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return None if stopped else process.returncode


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a child and whatever it has started: Flower's SuperExec may outlive the process it works for."""
    started = descendants(process.pid)
    process.terminate()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in started:
        kill(pid)


def kill(pid: int) -> None:
    """Kill a process at once; one that is gone already is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Everything that a process has started and that still hangs on it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(pid, []))
    for known in found:
        found += children.get(known, [])
    return found


def kill_stale(pid: int, word: str) -> None:
    """End a process of an earlier run, if the number still is that process."""
    with contextlib.suppress(OSError):
        if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            kill(pid)


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
