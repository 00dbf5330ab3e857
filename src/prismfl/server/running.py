"""A server at work: a run is begun or taken up again, watched to its end, stopped; and what its folder tells of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.files import schema
from prismfl.runs.config import RunConfig
from prismfl.runs.directory import RunDirectory
from prismfl.server.config import SCHEMA, ServerConfig, enrolled, load_server
from prismfl.server.contacts import contacts
from prismfl.server.serving import prepare
from prismfl.server.starting import Say, SuperLink, follow
from prismfl.site.certificates import look_at_server
from prismfl.transport.faults import faults
from prismfl.transport.flower import children

PID = "server.pid"
STOP_SECONDS = 30


def start(
    folder: Path, config: RunConfig | None, *, sites: Sequence[str] = (), insecure: bool = False, say: Say
) -> dict[str, Any]:
    """A run with the enrolled sites to its end, and its result; without a config the last one that did not finish."""
    settings = load_server(folder)
    other = children.pid_of(folder / PID)
    if other is not None:
        raise UserError(
            f"This server is running already (process {other}); stop it with: prismfl server stop {folder}."
        )
    if insecure:
        say("warning: --insecure: no encryption, and nobody proves who they are; for trials only")
    else:
        _check_certificates(folder, say)
    names = list(sites) if insecure else list(enrolled(folder))
    directory = _last_run(folder, say) if config is None else _new_run(folder, config, names, settings, say)
    schema.begin(folder, SCHEMA)
    (folder / PID).write_text(str(os.getpid()))
    link = SuperLink(folder, settings, insecure=insecure)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        link.start()
        link.submit(directory, names)
        say(f"listening on {link.local_address}; waiting for {', '.join(names)}")
        follow(directory, link, say)
    finally:
        link.stop()
        signal.signal(signal.SIGTERM, previous)
        (folder / PID).unlink(missing_ok=True)
    return directory.read_json("result.json")


def _check_certificates(folder: Path, say: Say) -> None:
    for state in look_at_server(folder / "keys"):
        if state.faults:
            raise UserError(
                f"No site would trust this server: {state.faults[0]}. Renew: prismfl server renew {folder}."
            )
        if state.soon is not None:
            say(f"warning: {state.soon}; renew it: prismfl server renew {folder}")


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _new_run(folder: Path, config: RunConfig, names: Sequence[str], settings: ServerConfig, say: Say) -> RunDirectory:
    if not names:
        raise UserError(f"No site is enrolled; enroll one with: prismfl server enroll {folder} NAME KEY.")
    path = folder / "runs" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    while path.exists():
        path = path.with_name(path.name + "x")
    return prepare(path, config, names, rules=settings.rules(), evaluate=settings.evaluate, say=say)


def runs_of(folder: Path) -> list[RunDirectory]:
    """The runs of a server, oldest first."""
    return [RunDirectory.open(note.parent) for note in sorted((folder / "runs").glob("*/federation.json"))]


def _last_run(folder: Path, say: Say) -> RunDirectory:
    unfinished = [run for run in runs_of(folder) if run.status != "finished"]
    if not unfinished:
        raise UserError(f"'{folder}' has no run that did not finish.")
    directory = unfinished[-1]
    if (directory.path / "process.json").exists():
        # A server that was killed may have left the run's own process behind; two must not write to one run.
        children.kill_stale(int(directory.read_json("process.json")["pid"]), "serverapp")
    for stale in ("process.json", "failure.json"):
        (directory.path / stale).unlink(missing_ok=True)
    directory.set_status("running")
    say(f"going on with {directory.path}")
    return directory


def status(folder: Path) -> dict[str, Any]:
    """Whether the server runs, who is enrolled, and every run with its round and its faults."""
    load_server(folder)
    runs = []
    for run in runs_of(folder):
        state = run.load_state()
        named = [f"{f.site} {f.code} (round {f.round + 1})" for f in faults(run)]
        done = state.round if state else 0
        runs.append({"run": run.path.name, "status": run.status, "rounds done": done, "dropped": "; ".join(named[-5:])})
    pid = children.pid_of(folder / PID)
    certificates = [
        words for state in look_at_server(folder / "keys") for words in (*state.faults, state.soon) if words
    ]
    found = {"running": pid is not None, "pid": pid, "sites": list(enrolled(folder)), "contact": ages(folder)}
    return {**found, "certificates": certificates, "runs": runs}


def ages(folder: Path) -> dict[str, float | None]:
    """Seconds since each enrolled site was last there; None for never."""
    known = contacts(folder)
    return {name: max(0.0, time.time() - known[name]) if name in known else None for name in enrolled(folder)}


def stop(folder: Path) -> None:
    """End a running server; its run can be taken up again."""
    pid = children.pid_of(folder / PID)
    if pid is None:
        raise UserError(f"The server in '{folder}' is not running.")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while children.is_running(pid) and time.monotonic() < end:
        time.sleep(0.2)
