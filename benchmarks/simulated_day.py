"""A day of a federation in minutes: `PYTHONPATH=. python benchmarks/federation_soak.py --hours 24 --minutes 15`.

Every party is a process of its own whose clock runs so many times as fast (libfaketime): the time of day, the time
since the start, every sleep. Deadlines, reservations that expire and the entries of ledgers see the whole day. A run
is begun every hour. Meanwhile the server and the sites are killed (`kill -9`, also while they compute or write), the
server's certificate is renewed every six hours, at nine a site gets a new key, at twelve all parties are upgraded one
by one to another version of the same protocol, at fifteen all sites are stopped and started in another order.

The wire is TLS with the federation's own certificates and node keys, over sockets of this machine instead of Flower,
whose processes take longer to start than an hour lasts here; Flower's own soak is process_soak.py.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import secrets
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.site.folders import NAMES, make_site, run_config

import prismfl
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.directory import RunDirectory
from prismfl.server import config as server_config
from prismfl.server import serving
from prismfl.server.config import ServerConfig, enroll, init_server
from prismfl.site.certificates import renew_server
from prismfl.site.egress import EgressLog
from prismfl.site.keys import make_site_keys, next_node_key, switch_node_key
from prismfl.site.office import Office
from prismfl.transport.conductor import QuorumError
from prismfl.transport.faults import faults
from prismfl.transport.post import Answer, Request, RoundRules

ROUNDS, EVERY = 6, 2.0
RENEW, ROTATE, UPGRADE, RESTART = (6.0, 12.0, 18.0), 9.0, 12.0, 15.0
KILLS_AN_HOUR = 1.5
CAP = 1000.0
VERSIONS = ("0.2.9", "0.9.0")
RULES = RoundRules(2, deadline=3600.0, join=3600.0, poll=5.0, ask_again=30.0)
MISSED = 3
PIECE = struct.Struct("<II")


# The wire: one request and its answer a connection.


def put(wire: ssl.SSLSocket, words: Mapping[str, Any], body: bytes = b"") -> None:
    head = json.dumps(words).encode()
    wire.sendall(PIECE.pack(len(head), len(body)) + head + body)


def get(wire: ssl.SSLSocket) -> tuple[dict[str, Any], bytes]:
    head, body = PIECE.unpack(_exactly(wire, PIECE.size))
    return json.loads(_exactly(wire, head)), _exactly(wire, body)


def _exactly(wire: ssl.SSLSocket, size: int) -> bytes:
    raw = b""
    while len(raw) < size:
        part = wire.recv(min(65536, size - len(raw)))
        if not part:
            raise ConnectionError("the other side is gone")
        raw += part
    return raw


def be_site(folder: Path, place: str) -> None:
    """A site until it is killed: a process for each request, forked from one that has everything imported."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    Path(place).unlink(missing_ok=True)
    Office.open(folder).preload()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen(16)
        while True:
            caller, _ = door.accept()
            if os.fork() == 0:
                _answer(folder, caller)
                os._exit(0)
            caller.close()


def _answer(folder: Path, caller: socket.socket) -> None:
    trust = ssl.create_default_context(cafile=str(folder / "keys" / "ca.pem"))
    with trust.wrap_socket(caller, server_hostname="127.0.0.1") as wire:
        asked, state = get(wire)
        key = serialization.load_ssh_private_key((folder / "keys" / "node.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        proof = key.sign(bytes.fromhex(asked.pop("nonce")), ec.ECDSA(hashes.SHA256()))
        given = Office.open(folder).answer(Request(**asked, state=state))
        words = {key: value for key, value in asdict(given).items() if key != "body"}
        put(wire, {**words, "proof": proof.hex(), "version": prismfl.__version__}, given.body)


class Wire:
    """The server's transport: a thread for each request that is under way."""

    def __init__(self, folder: Path, places: Path) -> None:
        self.folder, self.sockets = folder, places
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(folder / "keys" / "server.pem", folder / "keys" / "server.key")
        self.versions: Counter[str] = Counter()
        self._arrived: queue.SimpleQueue[tuple[int, Request, Answer]] = queue.SimpleQueue()

    def places(self) -> Mapping[int, str]:
        return {i: name for i, name in enumerate(NAMES) if name in server_config.enrolled(self.folder)}

    def send(self, place: int, request: Request) -> bool:
        threading.Thread(target=self._carry, args=(place, request), daemon=True).start()
        return True

    def collect(self) -> Iterator[tuple[int, Request, Answer]]:
        while not self._arrived.empty():
            yield self._arrived.get_nowait()

    def _carry(self, place: int, request: Request) -> None:
        try:
            answer = self._exchange(NAMES[place], request)
        except (OSError, ValueError, InvalidSignature):
            answer = Answer("lost")
        self._arrived.put((place, request, answer))

    def _exchange(self, name: str, request: Request) -> Answer:
        nonce = secrets.token_bytes(32)
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.sockets / name))
            with self.context.wrap_socket(line, server_side=True) as wire:
                asked = {key: value for key, value in asdict(request).items() if key != "state"}
                put(wire, {**asked, "nonce": nonce.hex()}, request.state)
                words, body = get(wire)
        enrolled = serialization.load_pem_public_key(server_config.enrolled(self.folder)[name])
        assert isinstance(enrolled, ec.EllipticCurvePublicKey)
        enrolled.verify(bytes.fromhex(words.pop("proof")), nonce, ec.ECDSA(hashes.SHA256()))
        self.versions[words.pop("version")] += 1
        return Answer(**words, body=body)


def be_server(folder: Path, run: Path, places: Path) -> int:
    """One run from its beginning or its last checkpoint."""
    if not (run / "federation.json").exists():
        shutil.rmtree(run, ignore_errors=True)  # killed while it was made: no site has heard of it
        config = run_config(settings={"rounds": ROUNDS, "steps": 1, "batch": 16, "sigma": 4.0})
        serving.prepare(run, config, NAMES, rules=RULES, evaluate=False)
    wire = Wire(folder, places)
    try:
        serving.serve(run, wire)
    except QuorumError:
        RunDirectory.open(run).set_status("running")
        return MISSED
    finally:
        with (folder / "versions.jsonl").open("a") as file:
            file.write(json.dumps({"server": prismfl.__version__, "sites": dict(wire.versions)}) + "\n")
    return 0


# The day


class Day:
    """All parties, the clock that they share, and what happens to them."""

    def __init__(self, root: Path, *, hours: float, minutes: float, seed: int) -> None:
        self.root, self.chance, self.hours = root, random.Random(seed), hours
        self.rate = hours * 60 / minutes
        self.began, self.dawn = time.monotonic(), datetime.now(UTC)
        self.library = _libfaketime()
        self.happened: Counter[str] = Counter()
        self.of = dict.fromkeys(("server", *NAMES), VERSIONS[0])
        self.at_work: dict[str, subprocess.Popen[bytes]] = {}
        self.away: dict[str, float] = {}
        self._found()

    def _found(self) -> None:
        source = Path(prismfl.__file__).parent
        for version in VERSIONS:
            place = self.root / version / "prismfl"
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
            (place / "version.py").write_text(f'"""The version."""\n\n__version__ = "{version}"\n')
        init_server(self.root / "server", ServerConfig(), ["127.0.0.1"])
        (self.root / "sockets").mkdir()
        for name in NAMES:
            make_site(self.root, name, cap=CAP, noise="operating-system", reserved_hours=3.0)
            make_site_keys(self.root / name / "keys")
            shutil.copy(self.root / "server" / "keys" / "ca.pem", self.root / name / "keys" / "ca.pem")
            enroll(self.root / "server", name, self.root / name / "keys" / "node.pub")

    @property
    def hour(self) -> float:
        return (time.monotonic() - self.began) * self.rate / 3600

    def start(self, who: str, *arguments: str) -> None:
        now = self.dawn + timedelta(hours=self.hour)
        here = Path(__file__).resolve().parent
        path = os.pathsep.join(map(str, (self.root / self.of[who], here.parent, here)))
        told = {"LD_PRELOAD": self.library, "FAKETIME": f"@{now:%Y-%m-%d %H:%M:%S} x{self.rate:g}", "TZ": "UTC"}
        environment = {**os.environ, **told, "PYTHONPATH": path, "NO_FAKE_STAT": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), *arguments]
        with (self.root / f"{who}.log").open("ab") as log:
            self.at_work[who] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_site(self, name: str) -> None:
        self.start(name, "site", str(self.root / name), str(self.root / "sockets" / name))

    def end(self, who: str, signum: int) -> None:
        process = self.at_work.pop(who, None)
        if process is None:
            return
        try:
            os.killpg(process.pid, signum)
            if signum != signal.SIGKILL:
                os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def run(self, end: float) -> list[Path]:
        """The day, hour by hour, until it is over or the clock on the wall says so; the runs that were begun."""
        for name in NAMES:
            self.start_site(name)
        due = [(hour, "renew") for hour in RENEW] + [(ROTATE, "rotate"), (RESTART, "restart")]
        due += [(UPGRADE + 0.4 * i, f"upgrade {who}") for i, who in enumerate(("server", *NAMES))]
        due, runs, kill = sorted(due), list[Path](), self._next_kill()
        while (self.hour < self.hours or {"server"} & {*self.at_work, *self.away}) and time.monotonic() < end:
            while due and self.hour >= due[0][0]:
                self._event(due.pop(0)[1], runs)
            if self.hour >= kill and self.hour < self.hours:
                self._kill()
                kill = self.hour + self._next_kill()
            for who in [who for who, until in self.away.items() if self.hour >= until]:
                del self.away[who]
                self._back(who, runs)
            self._runs(runs)
            time.sleep(0.05)
        return runs

    def _next_kill(self) -> float:
        return self.chance.expovariate(KILLS_AN_HOUR)

    def _runs(self, runs: list[Path]) -> None:
        """The server's process ended by itself: its run is over, or too few sites were there and it goes on later."""
        server = self.at_work.get("server")
        if server is not None and server.poll() is not None:
            code = self.at_work.pop("server").returncode
            self.happened["missed quorums" if code == MISSED else "ends" if code == 0 else f"code {code}"] += 1
            if code != 0:
                self.away["server"] = self.hour + 0.1
        begun = len(runs) * EVERY <= self.hour < self.hours
        if begun and "server" not in self.at_work and "server" not in self.away:
            runs.append(self.root / "server" / "runs" / f"{len(runs):03}")
            self._serve(runs[-1])

    def _serve(self, run: Path) -> None:
        self.start("server", "server", str(self.root / "server"), str(run), str(self.root / "sockets"))

    def _back(self, who: str, runs: list[Path]) -> None:
        if who in self.at_work:
            return
        if who != "server":
            self.start_site(who)
        elif runs:
            self._serve(runs[-1])

    def _kill(self) -> None:
        """Whoever is at work; a server more often than its share of the time it works would make it."""
        there = list(self.at_work)
        if not there:
            return
        who = "server" if "server" in there and self.chance.random() < 0.4 else self.chance.choice(there)
        self.end(who, signal.SIGKILL)
        self.happened["kills of the server" if who == "server" else "kills of a site"] += 1
        self.away[who] = self.hour + self.chance.uniform(0.01, 0.15)

    def _event(self, what: str, runs: list[Path]) -> None:
        word, _, who = what.partition(" ")
        if word == "renew":
            before = (self.root / "server" / "keys" / "server.pem").read_bytes()
            renew_server(self.root / "server" / "keys")
            assert (self.root / "server" / "keys" / "server.pem").read_bytes() != before
        elif word == "rotate":
            keys = self.root / "south" / "keys"
            server_config.replace(self.root / "server", "south", next_node_key(keys))
            self.end("south", signal.SIGTERM)
            switch_node_key(keys)
            self.away["south"] = self.hour + 0.05
        elif word == "upgrade":
            self.of[who] = VERSIONS[1]
            if who in self.at_work:
                self.end(who, signal.SIGTERM)
                self.away[who] = self.hour + 0.05
        else:
            for name in ("west", "north", "south"):
                self.end(name, signal.SIGTERM)
            for i, name in enumerate(("south", "west", "north")):
                self.away[name] = self.hour + 0.05 * (i + 1)
        self.happened[word] += 1

    def over(self) -> None:
        for who in list(self.at_work):
            self.end(who, signal.SIGKILL)


def _libfaketime() -> str:
    found = sorted(Path("/usr/lib").rglob("libfaketimeMT.so.1"))
    if not found:
        raise SystemExit("A day in minutes needs libfaketime: apt-get install faketime.")
    return str(found[0])


def outcome(root: Path, runs: list[Path]) -> dict[str, Any]:
    """What the day leaves, checked: nothing that arrived is unknown to a site, nothing was charged twice."""
    opened = [RunDirectory.open(run) for run in runs if (run / "federation.json").exists()]
    found: dict[str, Any] = {
        "runs begun": len(runs),
        "runs finished": sum(run.status == "finished" for run in opened),
        "rounds": sum(len({m.round for m in run.messages() if m.direction == "up"}) for run in opened),
        "faults named": dict(Counter(fault.code for run in opened for fault in faults(run))),
        "sites": {},
    }
    for name in NAMES:
        rows = EgressLog(root / name).rows()
        EgressLog(root / name).verify()
        with Ledger.open(root / name / "ledger.sqlite", create=False) as ledger:
            ledger.verify()
            charges = ledger.charges()
        ids = [charge.release for charge in charges]
        left: dict[tuple[str, int], set[str]] = {}
        for row in rows:
            if row["what"] == "release":
                left.setdefault((row["run"], row["round"]), set()).add(row["digest"])
        arrived = [
            ((run.read_json("federation.json")["description"]["run"], m.round), m.digest)
            for run in opened
            for m in run.messages()
            if m.site == name and m.direction == "up"
        ]
        times = [charge.time for charge in charges]
        found["sites"][name] = {
            "charges": len(ids),
            "charged twice": len(ids) - len(set(ids)),
            "charged and never made (killed while computing)": sum(charge.status == "charged" for charge in charges),
            "releases that left": len(left),
            "sent again": sum(bool(row.get("resend")) for row in rows),
            "rounds with two contents": sum(len(digests) > 1 for digests in left.values()),
            "arrived and unknown here": sum(digest not in left.get(place, set()) for place, digest in arrived),
            "arrived": len(arrived),
            "epsilon spent": round(_spent([charge.cost for charge in charges]), 3),
            "first and last charge": [min(times)[:16], max(times)[:16]] if times else [],
        }
    return found


def _spent(costs: list[Cost]) -> float:
    return account.epsilon(sum(costs[1:], start=costs[0]), 1e-5) if costs else 0.0


def soak_day(hours: float, minutes: float, seed: int) -> dict[str, Any]:
    """The day, and what came of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        day = Day(Path(folder), hours=hours, minutes=minutes, seed=seed)
        try:
            runs = day.run(started + 60 * (minutes + 3))
            lived = min(day.hour, hours)
        finally:
            day.over()
        told = [json.loads(line) for line in (day.root / "server" / "versions.jsonl").read_text().splitlines()]
        versions: Counter[str] = Counter()
        for line in told:
            versions.update({f"server {line['server']} with sites {site}": n for site, n in line["sites"].items()})
        found = {
            "hours": round(lived, 2),
            "minutes": round((time.monotonic() - started) / 60, 1),
            "times as fast": round(day.rate, 1),
            "seed": seed,
            "happened": dict(day.happened),
            "answers by version": dict(versions),
            **outcome(day.root, runs),
        }
        unfinished = [run for run in runs if not (run / "result.json").exists()]
        if unfinished:
            logs = "\n".join(path.read_text()[-1500:] for path in day.root.glob("*.log"))
            found["not finished"] = {"runs": [run.name for run in unfinished], "logs": logs}
        return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One party of the day; started by federation_soak.py.")
    parser.add_argument("party", choices=("site", "server"))
    parser.add_argument("places", nargs="+")
    given = parser.parse_args()
    if given.party == "site":
        be_site(Path(given.places[0]), given.places[1])
    else:
        sys.exit(be_server(*map(Path, given.places)))
