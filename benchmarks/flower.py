"""What a federation over Flower costs: a round against plain Flower, the server's memory, and the time to start.

    python benchmarks/flower.py rounds --sites 5 --rounds 6
    python benchmarks/flower.py memory

`rounds` runs in turn, on loopback with the same number of sites and the same bytes up and down, a plain Flower app
(`Grid.send_and_receive`, a ClientApp that echoes, neither TLS nor keys) and prismfl (TLS and keys on). The first round
of each is left out. `memory` lets 100 sites reply 1 MB each to one server and measures how much its memory grows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from alternate import say
from processes import Federation, cpu_of

from prismfl.core.job import Job
from prismfl.runs.config import RunConfig
from prismfl.runs.description import job_of
from prismfl.server import serving
from prismfl.transport.conductor import Conductor
from prismfl.transport.flower.children import beside_python, end, environment, free_port, spawn
from prismfl.transport.post import Answer, Request, RoundRules

PLAIN_PROJECT = """[project]
name = "plain"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "bench"
[tool.flwr.app.components]
serverapp = "plain_app:server"
clientapp = "plain_app:client"
[tool.flwr.app.config]
out = ""
rounds = 3
sites = 5
bytes = 3000
"""
PLAIN_APP = """import json, time
from pathlib import Path
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    return Message(message.content, reply_to=message)

@server.main()
def main(grid, context):
    told = context.run_config
    while len(list(grid.get_node_ids())) < told["sites"]:
        time.sleep(0.5)
    raw, seconds = bytes(told["bytes"]), []
    for i in range(told["rounds"]):
        start = time.time()
        record = lambda: RecordDict({"a": ArrayRecord({"a": Array("uint8", (len(raw),), "bytes", raw)})})
        messages = [Message(record(), node, "train", group_id=str(i)) for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(messages, timeout=600))
        assert len(replies) == told["sites"], len(replies)
        seconds.append(time.time() - start)
        Path(told["out"]).write_text(json.dumps(seconds))
"""


BYTES = 3168  # a release of the model that prismfl's side sends
RESULTS = Path(__file__).parent / "results" / "flower.json"


def save(part: str, found: Mapping[str, object]) -> None:
    """Keep a measurement beside the others."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, part: found}, indent=2, sort_keys=True) + "\n")


def wait_for(what: str, ready: object, seconds: float = 900.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:g} s for {what}")
        time.sleep(0.2)


class Marks:
    """CPU seconds of process trees at the end of each round; ended processes count with who waited for them."""

    def __init__(self, done: Callable[[], int]) -> None:
        self.done, self.roots, self.seen = done, list[int](), list[tuple[int, float]]()

    def look(self) -> int:
        count = self.done()
        if count and (not self.seen or self.seen[-1][0] != count):
            self.seen.append((count, sum(cpu_of(root) for root in self.roots)))
        return count

    def per_round(self) -> float:
        (first, start), (last, end) = self.seen[0], self.seen[-1]
        return (end - start) / (last - first)


def plain_rounds(root: Path, sites: int, rounds: int, size: int) -> tuple[list[float], float]:
    """Seconds of each round of a plain Flower app, and CPU seconds a round."""
    app, out, port = root / "app", root / "plain.json", free_port()
    app.mkdir(parents=True)
    (app / "pyproject.toml").write_text(PLAIN_PROJECT)
    (app / "plain_app.py").write_text(PLAIN_APP)
    settings = environment(root / "flower")
    (root / "flower").mkdir()
    address = f"127.0.0.1:{port}"
    connection = f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{address}"\ninsecure = true\n'
    (root / "flower" / "config.toml").write_text(connection)
    processes = []
    with (root / "link.log").open("wb") as link_log, (root / "nodes.log").open("wb") as log:
        link = [beside_python("flower-superlink"), "--insecure", "--port", str(port), "--host", "127.0.0.1"]
        processes.append(spawn([*link, "--disable-runtime-dependency-installation"], settings, link_log))
        for _ in range(sites):
            node = [beside_python("flower-supernode"), "--insecure", "--superlink", address, "--host", "127.0.0.1"]
            processes.append(spawn([*node, "--port", str(free_port())], settings, log))
        try:
            wait_for("the plain SuperLink", lambda: b"Uvicorn running on http" in (root / "link.log").read_bytes())
            overrides = f'out="{out}" rounds={rounds} sites={sites} bytes={size}'
            command = [beside_python("flwr"), "run", str(app), "x", "--run-config", overrides]
            subprocess.run(command, env=settings, check=True, capture_output=True)
            marks = Marks(lambda: len(json.loads((out.read_text() if out.exists() else "") or "[]")))
            marks.roots = [process.pid for process in processes]
            wait_for("the plain rounds", lambda: marks.look() == rounds)
        finally:
            for process in processes:
                end(process)
    return [float(value) for value in json.loads(out.read_text())][1:], marks.per_round()


def prismfl_rounds(root: Path, sites: int, rounds: int) -> tuple[list[float], float, float, list[float]]:
    """Seconds of each round of prismfl and CPU seconds a round; seconds of starting the server, and of joining: one
    site alone, then the others."""
    settings = f"rounds = {rounds}\nsteps = 1\nbatch = 16\nsigma = 1.0\n"
    run = f'method = "dp-fedavg"\ndata = "digits"\nmodel = "logreg"\n[settings]\n{settings}'
    site = {"data": "digits", "cap": 100.0, "methods": ["dp-fedavg"], "releases": ["weights"]}
    with Federation(root, sites, run, site=site, own=lambda i: {"part": i, "parts": sites}) as made:
        server_seconds = made.serve()
        site_seconds = [made.join(group) for group in (made.names[:1], made.names[1:])]
        assert made.server is not None
        marks = Marks(made.rounds)
        marks.roots = [process.pid for process in (made.server, *made.sites.values())]
        made.wait("prismfl's rounds", lambda: marks.look() == rounds)
        made.wait("prismfl's end", made.over)
        seconds = [row["seconds"] for row in made.directory().metrics()]
    return [b - a for a, b in pairwise(seconds)], marks.per_round(), server_seconds, site_seconds


def compare(sites: int, rounds: int, repeats: int) -> None:
    """Both sides in turn, several times: the machine's other work then falls on both."""
    plain, ours, cpu, starts, joins, loads = [], [], [], [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as root:
            seconds, plain_cpu = plain_rounds(Path(root) / "plain", sites, rounds, BYTES)
            plain += seconds
            loads.append(round(os.getloadavg()[0], 1))
            seconds, own_cpu, server_seconds, site_seconds = prismfl_rounds(Path(root) / "prismfl", sites, rounds)
            ours += seconds
            loads.append(round(os.getloadavg()[0], 1))
        cpu.append((plain_cpu, own_cpu))
        starts.append(server_seconds)
        joins.append(site_seconds)
    a, b = statistics.median(plain), statistics.median(ours)
    plain_cpu, own_cpu = (statistics.median(side) for side in zip(*cpu))
    found = {
        "sites": sites,
        "bytes": BYTES,
        "loads": loads,
        "cores": os.cpu_count(),
        "plain seconds": [round(s, 2) for s in plain],
        "prismfl seconds": [round(s, 2) for s in ours],
        "ratio of median seconds": round(b / a, 3),
        "plain CPU seconds a round": round(plain_cpu, 2),
        "prismfl CPU seconds a round": round(own_cpu, 2),
        "ratio of CPU seconds": round(own_cpu / plain_cpu, 3),
        "server start seconds": [round(s, 1) for s in starts],
        "join seconds, one site then the others at once": [[round(s, 1) for s in pair] for pair in joins],
    }
    save("rounds", found)
    say(json.dumps(found, indent=2))


class CannedPost:
    """100 sites that answer at once; each release is made when it is collected, as the wire would deliver it."""

    def __init__(self, job: Job, release: bytes) -> None:
        self.job, self.release = job, release
        self.asked: list[tuple[int, Request]] = []

    def places(self) -> Mapping[int, str | None]:
        return dict(enumerate(self.job.task.sites))

    def send(self, place: int, request: Request) -> bool:
        self.asked.append((place, request))
        return True

    def collect(self) -> Iterable[tuple[int, Request, Answer]]:
        waiting, self.asked = self.asked, []
        for place, request in waiting:
            name = self.job.task.sites[place]
            if request.kind == "hello":
                yield place, request, Answer("ready", site=name)
            elif request.kind == "finish":
                yield place, request, Answer("done", site=name)
            else:
                body = self.release.replace(b"SITE-NAME", name.encode())
                yield place, request, Answer("release", site=name, body=body)


def memory(method: str, sites: int) -> None:
    """Growth of the server's memory over a run of two rounds, in releases."""
    import torch

    from prismfl.core.payloads import KINDS
    from prismfl.core.release import Release
    from prismfl.privacy.cost import Cost

    names = [f"site-{i:04d}" for i in range(sites)]  # nine letters each, as the canned release has
    private = {"sigma": 1.0} if method != "fedavg" else {}
    config = RunConfig(method=method, data="mnist-5k", model="mlp:300", settings={"rounds": 2, **private})
    with tempfile.TemporaryDirectory() as root:
        rules = RoundRules(sites, deadline=600.0, poll=0.0)
        directory = serving.prepare(Path(root) / "run", config, names, rules=rules, evaluate=False)
        description = directory.read_json("federation.json")["description"]
        job = job_of(description)
        items = {}
        for name, kind in job.method.leaves.items():
            tensors = {
                k: torch.zeros(shape, dtype=getattr(torch, dtype)) for k, (dtype, shape) in job.shapes[name].items()
            }
            items[name] = KINDS[kind.kind](tensors)
        cost = Cost.non_private()
        releases = [Release(job.run, "SITE-NAME", i, items, cost, "none").encode() for i in range(2)]
        post = CannedPost(job, releases[0])
        grown = []
        before = 0

        def after_round(state: object, traffic: object) -> None:
            post.release = releases[1]
            grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)

        hub = serving._hub(job, directory.path)
        conductor = Conductor(job, description, post, directory, rules, hub=hub, after_round=after_round)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        conductor.run()
    size = len(releases[0])
    found = {"release MB": size / 1e6, "first round MB": grown[0] / 1e6, "second round MB": (grown[1] - grown[0]) / 1e6}
    save(f"memory, {method}, {sites} sites", {name: round(value, 2) for name, value in found.items()})
    say(
        f"{method}: {sites} releases of {size / 1e6:.2f} MB: first round +{grown[0] / 1e6:.1f} MB, second round "
        f"+{(grown[1] - grown[0]) / 1e6:.1f} MB; held at once they would be {sites * size / 1e6:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rounds", "memory", "memory-of"))
    parser.add_argument("--sites", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--method", default="dp-fedavg-client")
    given = parser.parse_args()
    if given.what == "rounds":
        compare(given.sites or 5, given.rounds, given.repeats)
    elif given.what == "memory-of":
        memory(given.method, given.sites or 100)
    else:
        # A process of its own for each: the peak of one must not hide the other's.
        for method, sites in (("dp-fedavg-client", 2), ("dp-fedavg-client", 100), ("fedavg", 2), ("fedavg", 100)):
            command = [sys.executable, __file__, "memory-of", "--method", method, "--sites", str(sites)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
