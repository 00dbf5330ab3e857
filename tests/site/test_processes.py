"""Real processes on loopback: a SuperLink, three SuperNodes, TLS, keys, and kill -9.

The tests share one federation and go through its life in order, since starting it is what costs time. Deadlines are
measured on the machine, so that a slow one is not mistaken for a broken one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from prismfl.errors import UserError
from prismfl.runs.description import job_of
from prismfl.runs.directory import RunDirectory
from prismfl.runs.result import state_digest
from prismfl.server.config import ServerConfig, enroll, init_server
from prismfl.site.certificates import make_authority
from prismfl.site.config import as_toml
from prismfl.site.joining import preflight, supernode_command
from prismfl.site.keys import make_site_keys
from prismfl.transport import in_process as local
from prismfl.transport.faults import faults
from prismfl.transport.flower.children import descendants, environment, free_port, is_running
from tests.site.folders import NAMES, make_site

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800), pytest.mark.xdist_group("processes")]
PATIENCE = 600.0
RUN = """method = "dp-fedavg"
data = "digits"
model = "logreg"
[settings]
rounds = 3
steps = 2
batch = 32
sigma = 1.0
"""


class Federation:
    """Folders of a server and three sites, and the processes that were started on them."""

    def __init__(self, root: Path) -> None:
        self.root, self.server = root, root / "server"
        self.address = f"127.0.0.1:{free_port()}"
        self.started: list[subprocess.Popen[bytes]] = []
        self.round_seconds = 0.0
        init_server(self.server, ServerConfig(), ["127.0.0.1"])
        (root / "run.toml").write_text(RUN)
        for name in NAMES:
            make_site(root, name)
            make_site_keys(root / name / "keys")
            (root / name / "keys" / "ca.pem").write_bytes((self.server / "keys" / "ca.pem").read_bytes())
            enroll(self.server, name, root / name / "keys" / "node.pub")
        self.configure(quorum=3, deadline=PATIENCE)

    def configure(self, *, quorum: int, deadline: float) -> None:
        port = int(self.address.rpartition(":")[2])
        config = ServerConfig(port=port, quorum=quorum, deadline=deadline, join=PATIENCE)
        (self.server / "server.toml").write_text(as_toml(config))

    def prismfl(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "prismfl", *arguments]
        with (self.root / f"{'-'.join(arguments[:2])}-{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root)
        self.started.append(process)
        return process

    def join(self, name: str) -> subprocess.Popen[bytes]:
        return self.prismfl("site", "join", name, self.address)

    def directory(self) -> RunDirectory:
        return RunDirectory.open(sorted((self.server / "runs").glob("*"))[-1])

    def logs(self) -> str:
        paths = [*self.root.glob("*.log"), *self.root.glob("*/*.log"), *self.server.glob("runs/*/server.log")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)

    def wait(self, what: str, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds:g} s for {what}\n{self.logs()}"
            time.sleep(0.2)

    def rounds_done(self) -> int:
        if not list((self.server / "runs").glob("*/checkpoint/state.safetensors")):
            return 0
        state = self.directory().load_state()
        return state.round if state else 0

    def end(self) -> None:
        for process in self.started:
            for pid in family(process.pid):
                _kill(pid, signal.SIGCONT)
                _kill(pid, signal.SIGKILL)
            process.wait()


def family(pid: int) -> list[int]:
    return [pid, *descendants(pid)]


def _kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("federation"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def sites(federation: Federation) -> dict[str, subprocess.Popen[bytes]]:
    return {name: federation.join(name) for name in NAMES}


def test_a_killed_server_resumes_to_the_same_bytes(
    federation: Federation, sites: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    server = federation.prismfl("server", "start", "server", "run.toml")
    federation.wait("the first round", lambda: federation.rounds_done() >= 1)
    for pid in family(server.pid):
        _kill(pid, signal.SIGKILL)
    server.wait()
    before = federation.rounds_done()
    assert before < 3
    again = federation.prismfl("server", "start", "server", "--resume")
    federation.wait("the end of the resumed run", lambda: again.poll() is not None)
    assert again.returncode == 0, federation.logs()
    directory = federation.directory()
    ends = [row["seconds"] for row in directory.metrics()]  # of the resumed run, from its second start
    federation.round_seconds = ends[-1] - ends[-2] if before < 2 else ends[-1]
    assert faults(directory) == []
    description = directory.read_json("federation.json")["description"]
    job = job_of(description)
    hosts = [make_site(tmp_path / "local", name)._host(job, description) for name in NAMES]
    outcome = local.run(job, hosts, directory=RunDirectory.create(tmp_path / "there", {}, {}))
    assert directory.read_json("result.json")["digest"] == state_digest(outcome.state)
    for name in NAMES:
        office = make_site(federation.root, name)
        charges = office._host(job, description).ledger.charges(run=job.run)
        assert len(charges) == 3
        assert all(charge.confirmed for charge in charges)


def test_a_dead_and_a_slow_site_are_named_and_the_rounds_end(
    federation: Federation, sites: dict[str, subprocess.Popen[bytes]]
) -> None:
    deadline = max(20.0, 4 * federation.round_seconds)
    federation.configure(quorum=1, deadline=deadline)
    before = set((federation.server / "runs").glob("*"))
    server = federation.prismfl("server", "start", "server", "run.toml")
    federation.wait("a new run", lambda: set((federation.server / "runs").glob("*")) > before)
    federation.wait("its first round", lambda: federation.rounds_done() >= 1)
    for pid in family(sites["south"].pid):
        _kill(pid, signal.SIGKILL)
    for pid in family(sites["west"].pid):
        _kill(pid, signal.SIGSTOP)
    _refuses_strangers(federation)
    federation.wait("the end of the run", lambda: server.poll() is not None, 4 * deadline + PATIENCE)
    for pid in family(sites["west"].pid):
        _kill(pid, signal.SIGCONT)
    assert server.returncode == 0, federation.logs()
    directory = federation.directory()
    named = {(fault.site, fault.code) for fault in faults(directory)}
    assert ("south", "late") in named
    assert ("west", "late") in named
    assert "north" not in {fault.site for fault in faults(directory)}
    assert {m.site for m in directory.messages() if m.round == 2} == {"north"}
    seconds = [row["seconds"] for row in directory.metrics()]
    assert seconds[2] - seconds[1] < 2 * deadline


def _refuses_strangers(federation: Federation) -> None:
    """Plaintext, another federation's certificate, and a key that nobody enrolled."""
    host, _, port = federation.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        plain.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert b"200" not in _read_all(plain)[:20]
    make_authority(federation.root / "other", ["127.0.0.1"])
    with pytest.raises(UserError, match="does not have a certificate of this federation"):
        preflight(federation.address, federation.root / "other" / "ca.pem", lambda line: None, attempts=20)
    stranger = federation.root / "stranger"
    make_site_keys(stranger / "keys")
    (stranger / "keys" / "ca.pem").write_bytes((federation.server / "keys" / "ca.pem").read_bytes())
    command = supernode_command(stranger, federation.address, insecure=False)
    with (stranger / "supernode.log").open("wb") as log:
        node = subprocess.Popen(
            [*command, "--max-retries", "1"],
            env=environment(stranger / "flower"),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    federation.started.append(node)
    federation.wait("the stranger to be refused", lambda: node.poll() is not None)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)  # Flower's SuperExec may outlive its SuperNode
    assert node.returncode != 0
    assert b"SuperNode ID" not in (stranger / "supernode.log").read_bytes()


def _read_all(connection: socket.socket) -> bytes:
    raw = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while part := connection.recv(4096):
            raw += part
    return raw


def test_too_few_sites_is_a_clear_error_and_stopping_leaves_nothing_behind(
    federation: Federation, sites: dict[str, subprocess.Popen[bytes]]
) -> None:
    for pid in family(sites["south"].pid):
        _kill(pid, signal.SIGKILL)
    federation.configure(quorum=3, deadline=10.0)
    text = (federation.server / "server.toml").read_text()
    (federation.server / "server.toml").write_text(text.replace(f"join = {PATIENCE}", "join = 5.0"))
    failing = federation.prismfl("server", "start", "server", "run.toml", "--format", "json")
    federation.wait("the refusal", lambda: failing.poll() is not None)
    assert failing.returncode == 1
    status = federation.prismfl("server", "status", "server", "--format", "json")
    status.wait()
    log = next(path for path in federation.root.glob("server-status-*.log"))
    last = json.loads(log.read_text())["runs"][-1]
    assert last["status"] == "failed"
    assert "absent" in last["dropped"]
    started = family(sites["north"].pid)
    sites["north"].terminate()
    federation.wait("the site to stop", lambda: not any(is_running(pid) for pid in started))
