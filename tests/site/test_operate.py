"""The page "Operate a federation", as processes: founded by deploy/found.sh, sites of an older version of the same
protocol, one killed and upgraded in mid-run, watched over HTTP while it runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("flwr")
import prismfl
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.directory import RunDirectory
from prismfl.site.egress import EgressLog
from prismfl.transport.flower.children import descendants, free_port

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200), pytest.mark.xdist_group("processes")]
SITES = ("north", "south", "west")
PATIENCE = 400.0
ROOT = Path(__file__).parents[2]


class Machines:
    """The folders of all parties, two versions of prismfl, and what was started."""

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, f"127.0.0.1:{free_port()}"
        self.started: list[subprocess.Popen[bytes]] = []
        source = Path(prismfl.__file__).parent
        for name, version in (("older", "0.2.9"), ("newer", "0.9.0")):
            shutil.copytree(source, root / name / "prismfl", ignore=shutil.ignore_patterns("__pycache__"))
            (root / name / "prismfl" / "version.py").write_text(f'"""The version."""\n\n__version__ = "{version}"\n')

    def environment(self, version: str) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PYTHONPATH": str(self.root / version), "PATH": path}

    def start(self, version: str, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        with (self.root / f"{len(self.started)}-{arguments[0]}-{arguments[1]}.log").open("wb") as log:
            command = [sys.executable, "-m", "prismfl", *map(str, arguments)]
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=cwd or self.root, env=self.environment(version)
            )
        self.started.append(process)
        return process

    def join(self, version: str, name: str) -> subprocess.Popen[bytes]:
        return self.start(version, "site", "join", self.root / name / "site", self.address, "--log", "json")

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"waited for {what}\n{self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        found = [*self.root.glob("*.log"), *self.root.glob("*/*/*.log"), *self.root.glob("server/server/runs/*/*.log")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-1500:]}" for path in found)

    def rounds(self) -> int:
        return sum(len(path.read_text().splitlines()) for path in self.root.glob("server/server/runs/*/metrics.jsonl"))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(tmp_path_factory.mktemp("operate"))
    yield made
    for process in made.started:
        made.kill(process)


VOLUMES = """
mount --bind "$1" "$1"
for party in server north south west; do mkdir -p "$1/$party"; mount --bind "$1/$party" "$1/$party"; done
mount -o remount,bind,ro "$1"
exec /bin/sh "$2" "$1" "$3"
"""


def founded(root: Path, address: str) -> list[str]:
    """The command of the trial's first container: a root that is read-only, but for a volume of each party."""
    script = str(ROOT / "deploy" / "found.sh")
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Urm", "true"], check=False).returncode:
        return ["/bin/sh", script, str(root), address]
    return [unshare, "-Urm", "/bin/sh", "-ec", VOLUMES, "sh", str(root), script, address]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def answers(port: int) -> bool:
    try:
        return bool(get(port, "/health"))
    except OSError:
        return False


def test_a_federation_is_founded_run_watched_and_upgraded_in_mid_run(machines: Machines) -> None:
    root = machines.root
    shim = root / "bin" / "prismfl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m prismfl "$@"\n')
    shim.chmod(0o755)
    settings = machines.environment("older")
    settings["PATH"] = f"{shim.parent}{os.pathsep}{settings['PATH']}"
    for again in (False, True):
        done = subprocess.run(founded(root, machines.address), env=settings, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert bool(done.stdout) != again, "what was founded once stays: a second start of the trial is harmless"
    file = root / "server" / "server" / "server.toml"
    file.write_text(
        file.read_text().replace("deadline = 86400.0", "deadline = 25.0").replace("quorum = 3", "quorum = 2")
    )

    server = machines.start("newer", "server", "start", ".", "run.toml", cwd=root / "server" / "server")
    sites = {name: machines.join("older", name) for name in SITES}
    ports = {"site": free_port(), "server": free_port()}
    machines.start("newer", "site", "watch", root / "south" / "site", "--port", str(ports["site"]))
    machines.start("newer", "server", "watch", root / "server" / "server", "--port", str(ports["server"]))
    machines.wait("the first round", lambda: machines.rounds() >= 1)
    machines.kill(sites["north"])
    machines.join("newer", "north")
    for port in ports.values():
        machines.wait("the monitor's page", lambda port=port: answers(port))  # type: ignore[misc]
        assert get(port, "/health") == (200, "ok\n")
        assert get(port, "/ready") == (200, "ok\n")
    assert "prismfl_site_releases_total" in get(ports["site"], "/metrics")[1]
    assert 'prismfl_server_contact_seconds{site="south"}' in get(ports["server"], "/metrics")[1]
    machines.wait("the end of the run", lambda: server.poll() is not None)
    assert server.returncode == 0, machines.logs()
    assert get(ports["server"], "/health") == (503, "no\n")
    _nothing_lost_nothing_twice(machines)


def _nothing_lost_nothing_twice(machines: Machines) -> None:
    (path,) = (machines.root / "server" / "server" / "runs").glob("*")
    run = RunDirectory.open(path)
    assert run.status == "finished"
    up = {(m.round, m.site) for m in run.messages() if m.direction == "up"}
    assert {(round, name) for round in range(3) for name in ("south", "west")} <= up
    for name in SITES:
        folder = machines.root / name / "site"
        log = EgressLog(folder)
        assert log.verify() > 0
        with Ledger.open(folder / "ledger.sqlite", create=False) as ledger:
            ledger.verify()
            charged = [charge.release for charge in ledger.charges()]
        assert len(charged) == len(set(charged)) <= 3
        left = {row["round"] for row in log.rows() if row["what"] == "release"}
        assert {round for round, site in up if site == name} <= left
