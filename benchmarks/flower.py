"""What a federation over Flower costs: a round against plain Flower, the server's memory, and the time to start.

    python benchmarks/flower.py rounds --sites 5 --rounds 6
    python benchmarks/flower.py memory

`rounds` runs, one after the other on loopback with the same number of sites and the same bytes up and down, a plain
Flower app (`Grid.send_and_receive`, a ClientApp that echoes) and prismfl (TLS and keys on). The first round of each
is left out. `memory` lets 100 sites reply 1 MB each to one server and measures how much its memory grows.
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
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from prismfl.config import RunConfig
from prismfl.engines.remote import Answer, Conductor, Request, Rules
from prismfl.federation import serving
from prismfl.federation.children import beside_python, end, environment, free_port, spawn
from prismfl.federation.description import job_of
from prismfl.federation.keys import make_site_keys
from prismfl.federation.server_config import ServerConfig, enroll, init_server
from prismfl.federation.site_config import SiteConfig, as_toml
from prismfl.rounds import Job
from prismfl.transcript import RunDirectory

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


def wait_for(what: str, ready: object, seconds: float = 900.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:g} s for {what}")
        time.sleep(0.2)


def plain_rounds(root: Path, sites: int, rounds: int, size: int) -> list[float]:
    """Seconds of each round of a plain Flower app."""
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
            wait_for("the plain rounds", lambda: out.exists() and len(json.loads(out.read_text() or "[]")) == rounds)
        finally:
            for process in processes:
                end(process)
    return [float(value) for value in json.loads(out.read_text())]


def prismfl_rounds(root: Path, sites: int, rounds: int) -> tuple[list[float], float, float]:
    """Seconds of each round of prismfl, of starting the server, and of a site's joining."""
    names, port = [f"site-{i}" for i in range(sites)], free_port()
    init_server(root / "server", ServerConfig(), ["127.0.0.1"])
    config = ServerConfig(port=port, quorum=sites, deadline=900.0, join=900.0)
    (root / "server" / "server.toml").write_text(as_toml(config))
    for i, name in enumerate(names):
        folder = root / name
        site = SiteConfig(
            name=name, data="digits", part=i, parts=sites, cap=100.0, methods=["dp-fedavg"], releases=["weights"]
        )
        make_site_keys(folder / "keys")
        (folder / "site.toml").write_text(as_toml(site))
        (folder / "keys" / "ca.pem").write_bytes((root / "server" / "keys" / "ca.pem").read_bytes())
        enroll(root / "server", name, folder / "keys" / "node.pub")
    settings = f"rounds = {rounds}\nsteps = 1\nbatch = 16\nsigma = 1.0\n"
    (root / "run.toml").write_text(f'method = "dp-fedavg"\ndata = "digits"\nmodel = "logreg"\n[settings]\n{settings}')
    command = [sys.executable, "-m", "prismfl"]
    with (root / "log").open("wb") as log:
        started = time.monotonic()
        start = [*command, "server", "start", "server", "run.toml"]
        server = subprocess.Popen(start, cwd=root, stdout=log, stderr=log)
        wait_for("the server", lambda: b"listening" in (root / "log").read_bytes())
        server_seconds = time.monotonic() - started
        joined = time.monotonic()
        join = [*command, "site", "join"]
        nodes = [
            subprocess.Popen([*join, name, f"127.0.0.1:{port}"], cwd=root, stdout=log, stderr=log) for name in names
        ]
        try:
            wait_for("the sites", lambda: all(_joined(root / name) for name in names))
            site_seconds = time.monotonic() - joined
            wait_for("prismfl's rounds", lambda: server.poll() is not None)
        finally:
            for process in (server, *nodes):
                end(process)
    (directory,) = (RunDirectory.open(path) for path in (root / "server" / "runs").glob("*"))
    marks = [row["seconds"] for row in directory.metrics()]
    return [b - a for a, b in pairwise(marks)], server_seconds, site_seconds


def _joined(folder: Path) -> bool:
    log = folder / "supernode.log"
    return log.exists() and b"SuperNode ID" in log.read_bytes()


def compare(sites: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        plain = plain_rounds(Path(root) / "plain", sites, rounds, 3168)[1:]
        ours, server_seconds, site_seconds = prismfl_rounds(Path(root) / "prismfl", sites, rounds)
    a, b = statistics.median(plain), statistics.median(ours)
    print(f"sites {sites}, rounds {len(plain)}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"plain Flower  {a:.2f} s a round (from {min(plain):.2f} to {max(plain):.2f})")
    print(f"prismfl       {b:.2f} s a round (from {min(ours):.2f} to {max(ours):.2f})")
    print(f"ratio         {b / a:.2f} (promise: at most 1.3)")
    print(f"server start  {server_seconds:.1f} s, {sites} sites joined in {site_seconds:.1f} s (promise: 20 s each)")


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

    from prismfl.boundary import Release
    from prismfl.payloads import KINDS
    from prismfl.privacy.cost import Cost

    names = [f"site-{i:04d}" for i in range(sites)]  # nine letters each, as the canned release has
    private = {"sigma": 1.0} if method != "fedavg" else {}
    config = RunConfig(method=method, data="mnist-5k", model="mlp:300", settings={"rounds": 2, **private})
    with tempfile.TemporaryDirectory() as root:
        rules = Rules(sites, deadline=600.0, poll=0.0)
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
    print(f"{method}: {sites} releases of {size / 1e6:.2f} MB: first round +{grown[0] / 1e6:.1f} MB, ", end="")
    print(f"second round +{(grown[1] - grown[0]) / 1e6:.1f} MB; held at once they would be {sites * size / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rounds", "memory", "memory-of"))
    parser.add_argument("--sites", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--method", default="dp-fedavg-client")
    given = parser.parse_args()
    if given.what == "rounds":
        compare(given.sites or 5, given.rounds)
    elif given.what == "memory-of":
        memory(given.method, given.sites or 100)
    else:
        # A process of its own for each: the peak of one must not hide the other's.
        for method, sites in (("dp-fedavg-client", 2), ("dp-fedavg-client", 100), ("fedavg", 100)):
            command = [sys.executable, __file__, "memory-of", "--method", method, "--sites", str(sites)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
