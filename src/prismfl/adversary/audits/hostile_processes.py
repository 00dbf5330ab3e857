"""The hostile server over real processes: a SuperLink with TLS, sites that have joined it, and a ServerApp that is not
prismfl's own. What the sites made of it is read from the outside, from their ledgers."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismfl.adversary.audits.hostile import PROBES, Cell, Probe, Row
from prismfl.adversary.audits.hostile_site import NAMES, Bench, Town
from prismfl.core.method import Method
from prismfl.core.payloads import JsonDict
from prismfl.files.atomic import make_folder
from prismfl.methods import METHODS
from prismfl.privacy.ledger.balances import Charge
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.directory import RunDirectory
from prismfl.server import starting
from prismfl.server.config import ServerConfig, enroll, init_server
from prismfl.site.config import ledger_of
from prismfl.site.keys import make_site_keys
from prismfl.site.office import Office
from prismfl.transport.flower.children import beside_python, end, free_port, spawn
from prismfl.transport.post import Answer, Post, Request

OVER_PROCESSES = {"dp-fedavg": ("limits", "rosters", "weights", "rounds"), "prism-head": ("rosters", "rounds")}
"""What is played against which method; a question takes seconds. First what must leave nothing reserved."""
PATIENCE = 600.0
NOTE = "hostile.json"
SERVERAPP = """#!{python}
from prismfl.adversary.audits.hostile_processes import serverapp

serverapp()
"""


def audit_processes(method: Method, say: starting.Say) -> Row:
    """Start a federation on this machine, let the hostile server ask, and read what it found."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = _federation(method, Path(folder).resolve(), say)
    cells = {name: Cell(c["questions"], c["charges"], tuple(c["broke"])) for name, c in found.items()}
    return Row(f"{method.name} (processes, TLS)", cells, round(time.monotonic() - started, 1))


def _federation(method: Method, root: Path, say: starting.Say) -> dict[str, Any]:
    server, shared = root / "server", method.summed is not None
    config = ServerConfig(port=free_port(), quorum=1, join=PATIENCE)
    init_server(server, config, ["127.0.0.1"])
    town = Bench(method, root / "sites").town(shared=shared)
    for name, office in town.sites.items():
        keys = office.folder / "keys"
        if not shared:
            make_site_keys(keys)
        (keys / "ca.pem").write_bytes((server / "keys" / "ca.pem").read_bytes())
        enroll(server, name, keys / "node.pub")
    directory = RunDirectory.create(server / "runs" / "hostile", {}, {})
    directory.write_json(NOTE, {"method": method.name, "folder": str(root / "sites" / "0"), "shared": shared})
    _write_serverapp(root / "bin")
    link = starting.SuperLink(server, config, insecure=False)
    link.environment["PATH"] = f"{root / 'bin'}{os.pathsep}{link.environment['PATH']}"
    sites: list[subprocess.Popen[bytes]] = []
    try:
        link.start()
        for office in town.sites.values():
            sites.append(_join(office.folder, link.local_address))
        link.submit(directory, list(town.sites))
        starting.follow(directory, link, say)
        return directory.read_json("found.json")
    finally:
        for process in sites:
            end(process)
        link.stop()


def _join(folder: Path, address: str) -> subprocess.Popen[bytes]:
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        return spawn([sys.executable, "-m", "prismfl", "site", "join", str(folder), address], os.environ, log)


def _write_serverapp(folder: Path) -> None:
    """What the SuperLink starts in place of Flower's ServerApp process: whoever runs the server may do that."""
    make_folder(folder)
    path = folder / "flwr-serverapp"
    path.write_text(SERVERAPP.format(python=sys.executable))
    path.chmod(0o700)


def serverapp() -> None:
    """In that process: Flower's own, with another mind."""
    from prismfl.server import serving

    vars(serving)["serve"] = play
    runpy.run_path(beside_python("flwr-serverapp"), run_name="__main__")


def play(path: Path, post: Post) -> None:
    """Ask the sites over Flower's Grid what no honest server asks, and write down what broke."""
    directory = RunDirectory.open(path)
    directory.write_json("process.json", {"pid": os.getpid()})
    told, found = directory.read_json(NOTE), {}
    bench = RemoteBench(METHODS[told["method"]], Path(told["folder"]), post=post, secured=told["shared"])
    for name in OVER_PROCESSES[bench.method.name]:
        found[name] = bench.played(name, PROBES[name])
        with (path / "server.log").open("a") as log:
            log.write(f"{name}: {found[name]['questions']} questions, {len(found[name]['broke'])} broke\n")
    directory.write_json("found.json", found)
    directory.set_status("finished")


@dataclass
class RemoteBench(Bench):
    """The same questions to sites that run by themselves; each attack counts from where the one before ended."""

    post: Post = field(kw_only=True)
    secured: bool = field(kw_only=True)
    attack: str = ""

    def played(self, name: str, attack: Probe) -> JsonDict:
        """Play one attack: how much it asked and charged, and what broke."""
        before, self.attack = (self.questions, self.charges), name
        try:
            broke = list(attack(self))
        except Exception as error:  # nothing was shown then
            broke = [f"the audit could not go on: {type(error).__name__}: {str(error)[:200]}"]
        return {"questions": self.questions - before[0], "charges": self.charges - before[1], "broke": broke}

    def describe(self, *, shared: bool | None = None, run: str = "", **changes: Any) -> JsonDict:
        """An honest request, in a run named after the attack unless another name is given."""
        return super().describe(shared=shared, run=run or self.attack, **changes)

    def town(self, *, shared: bool | None = None, world: str = "all", **changes: Any) -> Town:
        """The sites that are running already, with a note of what their victim's ledger holds so far."""
        names = NAMES if self.secured else NAMES[:1]
        sites = {name: Office.open(self.folder / name) for name in names}
        town = RemoteTown(self, sites, bool(self.shared if shared is None else shared), post=self.post)
        town.before = len(Town.charged(town)), town.entries()
        return town


@dataclass
class RemoteTown(Town):
    """Sites at the other end of a Grid; of their folders only the ledger is read, to see what was charged."""

    post: Post = field(kw_only=True)
    before: tuple[int, int] = (0, 0)

    def deliver(self, site: str, request: Request) -> Answer:
        """One request, until its answer is there."""
        end = time.monotonic() + PATIENCE
        place, sent = None, False
        while time.monotonic() < end:
            place = next((p for p, name in self.post.places().items() if name == site), None)
            if not sent and place is not None:
                sent = self.post.send(place, request)
            for whence, asked, answer in self.post.collect():
                if answer.kind == "lost":
                    sent = False
                elif whence == place and asked is request:
                    return answer
            time.sleep(0.05)
        raise TimeoutError(f"Site {site} has not answered in {PATIENCE:g} s.")

    def entries(self) -> int:
        """The number of entries on the victim's ledger."""
        place = ledger_of(self.victim.folder, self.victim.config)
        if not place.exists():
            return 0
        with Ledger.open(place) as ledger:
            return len(ledger.history())

    def charged(self, run: str | None = None) -> list[Charge]:
        """The victim's charges of one run, or all since this town was made."""
        found = super().charged(run)
        return found if run is not None else found[self.before[0] :]

    def reserved(self) -> bool:
        """Whether the victim's ledger has grown since this town was made."""
        return self.entries() > self.before[1]
