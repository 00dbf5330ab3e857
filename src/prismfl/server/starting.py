"""Starting and watching the server's processes: the SuperLink, and a run on it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prismfl.errors import PrismError, UserError
from prismfl.files.atomic import write_atomically
from prismfl.files.bounded import read_json
from prismfl.runs.directory import RunDirectory
from prismfl.server.config import ServerConfig, enrolled
from prismfl.transport.flower.children import ProcessError, end, environment, guarded, is_running, spawn, split_address
from prismfl.transport.flower.guard import COMPONENTS
from prismfl.version import __version__

Say = Callable[[str], None]
CONNECTION = "prismfl"
START_SECONDS = 300.0
FULL = 2**20  # bytes that are left


class SuperLink:
    """Flower's SuperLink as a child process; it dies with this one, however this one ends."""

    def __init__(self, folder: Path, config: ServerConfig, *, insecure: bool) -> None:
        self.folder, self.config, self.insecure = folder.resolve(), config, insecure
        self.environment = environment(self.folder / "flower")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def local_address(self) -> str:
        """HOST:PORT at which this machine reaches the SuperLink."""
        host = "127.0.0.1" if self.config.host == "0.0.0.0" else self.config.host
        return f"{host}:{self.config.port}"

    def start(self) -> None:
        """Start the process, wait until it listens, and write the config by which Flower's commands find it."""
        keys, home = self.folder / "keys", self.folder / "flower"
        home.mkdir(exist_ok=True)
        forget_revoked(self.folder)
        _refuse_taken(self.local_address)
        command = [*guarded("superlink"), "--host", self.config.host, "--port", str(self.config.port)]
        command += ["--database", str(home / "state.db"), "--disable-runtime-dependency-installation"]
        if self.insecure:
            command += ["--insecure"]
        else:
            command += ["--ssl-certfile", str(keys / "server.pem"), "--ssl-keyfile", str(keys / "server.key")]
            command += ["--ssl-ca-certfile", str(keys / "ca.pem"), "--enable-supernode-auth"]
        with (self.folder / "superlink.log").open("ab") as log:
            self._process = spawn(command, self.environment, log)
        _await_port(self.local_address, self._process, self.folder / "superlink.log")
        trust = "insecure = true" if self.insecure else f"root-certificates = {json.dumps(str(keys / 'ca.pem'))}"
        connection = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        write_atomically(home / "config.toml", f'{connection}address = "{self.local_address}"\n{trust}\n'.encode())

    def submit(self, directory: RunDirectory, sites: Sequence[str]) -> None:
        """Make the sites' keys known and hand over the run, as a Flower app that holds no code."""
        app, note = self.folder / "app", self.folder / "flower" / "registered.json"
        write_app(app)
        told = {"run-dir": str(directory.path.resolve()), "server": "" if self.insecure else str(self.folder)}
        overrides = " ".join(f"{key}={json.dumps(value)}" for key, value in told.items())
        known = read_json(note) if note.exists() else {}
        keys = {} if self.insecure else {n: k.decode() for n, k in enrolled(self.folder).items() if n in sites}
        new = {name: key for name, key in keys.items() if known.get(name) != key}
        commands = [["supernode", "register", str(self.folder / "sites" / f"{n}.pub"), CONNECTION] for n in new]
        self._control([*commands, ["run", str(app), CONNECTION, "--run-config", overrides]])
        write_atomically(note, json.dumps({**known, **new}).encode())

    def alive(self) -> bool:
        """Whether the process was started and still runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the process, if it was started, and whatever it has started."""
        if self._process is not None:
            end(self._process)

    def _control(self, commands: Sequence[Sequence[str]]) -> None:
        """Flower's own command line, several commands in one process: starting it takes longer than they do."""
        done = subprocess.run(
            [*guarded("control"), json.dumps(commands)],
            env=self.environment,
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            words = " ".join((done.stdout + done.stderr).decode(errors="replace").split())[-300:]
            raise ProcessError(f"Flower refused the run: {words}")


def forget_revoked(folder: Path) -> None:
    """Flower's own list of keys is made anew where one of them is no longer enrolled. It holds nothing else that lasts:
    runs are in their own folders."""
    note, known = folder / "flower" / "registered.json", set(enrolled(folder).values())
    if note.exists() and any(str(key).encode() not in known for key in read_json(note).values()):
        for path in (note, *(folder / "flower").glob("state.db*")):
            path.unlink()


def write_app(folder: Path) -> None:
    """The project as a Flower app: a pyproject.toml whose components are the installed package's."""
    text = f"""[project]
name = "prismfl-app"
version = "{__version__}"
description = "prismfl as a Flower app"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "prismfl"

[tool.flwr.app.components]
serverapp = "{COMPONENTS["serverapp"]}"
clientapp = "{COMPONENTS["clientapp"]}"

[tool.flwr.app.config]
run-dir = ""
server = ""
config = ""
out = "runs/flower"
"""
    write_atomically(folder / "pyproject.toml", text.encode())


def follow(directory: RunDirectory, link: SuperLink, say: Say, *, poll: float = 0.5) -> None:
    """Repeat the run's log until it ends; raise when it failed or one of its processes died."""
    log, seen = directory.path / "server.log", 0
    note = directory.path / "process.json"
    started = time.monotonic()
    while True:
        status = directory.status
        lines = log.read_text().splitlines() if log.exists() else []
        for line in lines[seen:]:
            say(line)
        seen = len(lines)
        if status == "finished":
            return
        if status == "failed":
            told = directory.read_json("failure.json")
            raise _failure(told)
        if not link.alive():
            raise ProcessError(f"The SuperLink has died; see {link.folder / 'superlink.log'}, then start --resume.")
        if not note.exists() and time.monotonic() - started > START_SECONDS:
            raise ProcessError(f"The run did not start in {START_SECONDS:g} s; see {link.folder / 'superlink.log'}.")
        if note.exists() and not is_running(int(directory.read_json("process.json")["pid"])):
            time.sleep(poll)  # it may have written its last word just now
            if directory.status == "running":
                raise ProcessError(_why_gone(directory.path))
        time.sleep(poll)


def _why_gone(place: Path) -> str:
    """What ended the run's process without a word of its own: a full disk has no room for one."""
    if shutil.disk_usage(place).free < FULL:
        return f"The disk of '{place}' is full; free space there, then go on with: prismfl server start --resume."
    return "The run's server process was killed; go on with: prismfl server start --resume."


def _failure(told: Mapping[str, object]) -> PrismError:
    error = PrismError(str(told["message"]))
    error.code, error.exit_code = str(told["code"]), int(str(told["exit_code"]))
    return error


def _await_port(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, port = split_address(address)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ProcessError(f"The SuperLink ended at once (code {process.returncode}); see {log}.")
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise ProcessError(f"The SuperLink does not answer at {address} after {START_SECONDS:g} s; see {log}.")


def _refuse_taken(address: str) -> None:
    host, port = split_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"Cannot listen on {address}: {error.strerror}.") from None
