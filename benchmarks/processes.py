"""A federation of real processes on loopback, for benchmarks: a server and its sites, with TLS and keys."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from prismfl.runs.directory import RunDirectory
from prismfl.server.config import ServerConfig, enroll, init_server
from prismfl.site.config import SiteConfig, as_toml
from prismfl.site.keys import make_site_keys
from prismfl.transport.flower.children import descendants, end, free_port

TICKS = os.sysconf("SC_CLK_TCK")


class Federation:
    """Folders, keys and processes below `root`; `run` is a run.toml, `site` what is said in each site.toml."""

    def __init__(
        self, root: Path, sites: int, run: str, *, site: Mapping[str, Any], own: Callable[[int], Mapping[str, Any]]
    ) -> None:
        self.root, self.port = root, free_port()
        self.names = [f"site-{i}" for i in range(sites)]
        self.server: subprocess.Popen[bytes] | None = None
        self.sites: dict[str, subprocess.Popen[bytes]] = {}
        config = ServerConfig(port=self.port, quorum=sites, deadline=900.0, join=900.0)
        init_server(root / "server", config, ["127.0.0.1"])
        for i, name in enumerate(self.names):
            folder = root / name
            make_site_keys(folder / "keys")
            (folder / "site.toml").write_text(as_toml(SiteConfig(**{"name": name, **site, **own(i)})))
            (folder / "keys" / "ca.pem").write_bytes((root / "server" / "keys" / "ca.pem").read_bytes())
            enroll(root / "server", name, folder / "keys" / "node.pub")
        (root / "run.toml").write_text(run)
        (root / "log").touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.sites.values(), *([self.server] if self.server else ())):
            end(process)

    def serve(self) -> float:
        """Starts the server; seconds until it listens."""
        began = time.monotonic()
        self.server = self._start("server", "start", "server", "run.toml")
        self.wait("the server", lambda: b"listening" in self.log())
        return time.monotonic() - began

    def join(self, names: Sequence[str]) -> float:
        """Starts some sites; seconds until all of them are connected."""
        began = time.monotonic()
        for name in names:
            self.sites[name] = self._start("site", "join", name, f"127.0.0.1:{self.port}")
        self.wait("the sites", lambda: all(self.joined(name) for name in names))
        return time.monotonic() - began

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.root / "log").open("ab") as log:
            command = [sys.executable, "-m", "prismfl", *arguments]
            return subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log)

    def log(self) -> bytes:
        return (self.root / "log").read_bytes()

    def joined(self, name: str) -> bool:
        log = self.root / name / "supernode.log"
        return log.exists() and b"SuperNode ID" in log.read_bytes()

    def directory(self) -> RunDirectory:
        (path,) = (self.root / "server" / "runs").glob("*")
        return RunDirectory.open(path)

    def rounds(self) -> int:
        """Rounds that are done."""
        return sum(len(path.read_text().splitlines()) for path in self.root.glob("server/runs/*/metrics.jsonl"))

    def over(self) -> bool:
        return self.server is not None and self.server.poll() is not None

    def wait(self, what: str, ready: Callable[[], bool], seconds: float = 1800.0) -> None:
        end_of_patience = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end_of_patience:
                raise SystemExit(f"waited {seconds:g} s for {what}:\n{self.log()[-2000:].decode(errors='replace')}")
            time.sleep(0.2)


def family(root: int) -> list[int]:
    """A process and all that it has started."""
    return [root, *descendants(root)]


def cpu_of(root: int) -> float:
    """CPU seconds of a process and its family; those that ended count with who waited for them."""
    total = 0.0
    for pid in family(root):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(value) for value in fields[11:15]) / TICKS
    return total


def memory_of(root: int, *, alone: bool = False) -> dict[str, float]:
    """MB of a process and its family: resident each, and in all with pages that several share counted once."""
    resident = shared = 0.0
    for pid in [root] if alone else family(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            found = {line.split(":")[0]: int(line.split(":")[1].split()[0]) for line in lines}
            resident, shared = resident + found["Rss"] / 1000, shared + found["Pss"] / 1000
    return {"resident MB": round(resident), "proportional MB": round(shared)}
