"""Real sites on one machine: SuperNodes over TLS with keys, each a `prismfl site join`, and one server.

    nice -n 10 python benchmarks/real_sites.py idle                      # one site that nobody has asked anything
    nice -n 10 python benchmarks/real_sites.py rounds --sites 20 --rounds 10
    nice -n 10 python benchmarks/real_sites.py large --sites 4 --megabytes 200 --busy 4

`idle` measures the memory of all processes of a site before the first request. `rounds` runs a private
logistic regression on a part of digits at every site: seconds a round, CPU seconds of the server for each site and
round, memory of server and sites. `large` has every site reply so many megabytes (FedAvg without noise of a wide MLP)
while other processes keep the cores busy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from alternate import RESULTS, say
from processes import Federation, cpu_of, family, memory_of

from prismfl.server.config import load_server
from prismfl.server.starting import SuperLink
from prismfl.transport.faults import faults

TRIAL = {"data": "digits", "cap": 100.0, "methods": ["dp-fedavg"], "releases": ["weights"]}
SIDE = 128
BUSY = "import time\nend = time.monotonic() + 3600\nwhile time.monotonic() < end: sum(range(1000))"


def save(part: str, found: dict[str, Any]) -> None:
    """Keep a measurement beside the others, with the machine's load."""
    file = RESULTS / "real_sites.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    load = [round(value, 1) for value in os.getloadavg()]
    file.write_text(json.dumps({**known, part: {**found, "cores": os.cpu_count(), "load": load}}, indent=2) + "\n")
    say(json.dumps(found, indent=2))


def federation(root: Path, sites: int, rounds: int) -> Federation:
    settings = f"rounds = {rounds}\nsteps = 1\nbatch = 16\nsigma = 1.0\n"
    run = f'method = "dp-fedavg"\ndata = "digits"\nmodel = "logreg"\n[settings]\n{settings}'
    return Federation(root, sites, run, site=TRIAL, own=lambda i: {"part": i, "parts": sites})


def idle(root: Path) -> None:
    """A site at a SuperLink without a run: nothing was ever asked."""
    with federation(root, 1, 1) as made:
        link = SuperLink(root / "server", load_server(root / "server"), insecure=False)
        link.start()
        try:
            key = root / "server" / "sites" / "site-0.pub"
            link._control([["supernode", "register", str(key), "prismfl"]])
            made.join(made.names)
            time.sleep(20)
            pid = made.sites["site-0"].pid
            alive = {one: maps for one in family(pid) if (maps := _maps(one))}  # a zombie has none
            torch = sum("libtorch" in maps for maps in alive.values())
            save("idle", {"site": memory_of(pid), "processes": len(alive), "with torch": torch})
            for one in alive:
                words = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                say(f"{memory_of(one, alone=True)} {words[:100]}")
        finally:
            link.stop()


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def rounds(root: Path, sites: int, count: int) -> None:
    with federation(root, sites, count) as made:
        listening = made.serve()
        # A few at a time: twenty Pythons that start at once on two cores are no federation.
        joining = sum(made.join(made.names[i : i + 4]) for i in range(0, sites, 4))
        assert made.server is not None
        marks: list[tuple[int, float, float]] = []
        peak = {"server": 0.0, "site": 0.0}

        def look() -> bool:
            assert made.server is not None
            done = made.rounds()
            if not marks or marks[-1][0] != done:
                server, others = cpu_of(made.server.pid), sum(cpu_of(node.pid) for node in made.sites.values())
                marks.append((done, server, others))
                peak["server"] = max(peak["server"], memory_of(made.server.pid)["proportional MB"])
                peak["site"] = max(peak["site"], memory_of(made.sites["site-0"].pid)["proportional MB"])
            return made.over()

        made.wait("the end", look, 3600)
        run = made.directory()
        seconds = [b - a for a, b in pairwise(row["seconds"] for row in run.metrics())]
        (first, server0, sites0), (last, server1, sites1) = marks[1], marks[-1]
        asked = (last - first) * sites
        found = {
            "sites": sites,
            "rounds": len(run.metrics()),
            "faults": [f"{f.round + 1} {f.site} {f.code}" for f in faults(run)],
            "seconds to listen": round(listening, 1),
            "seconds until all had joined": round(joining, 1),
            "seconds a round": [round(value, 1) for value in seconds],
            "median seconds a round": round(statistics.median(seconds), 2),
            "server's CPU ms a site and round": round(1000 * (server1 - server0) / asked, 1),
            "a site's CPU ms a round": round(1000 * (sites1 - sites0) / asked, 1),
            "server's peak MB": peak["server"],
            "a site's peak MB": peak["site"],
            "bytes up a site and round": run.metrics()[-1]["bytes_up"] // sites,
        }
        save("rounds", found)


def large(root: Path, sites: int, megabytes: float, busy: int) -> None:
    """Replies of so many megabytes, every site at once, on busy cores."""
    width = max(1, round(megabytes * 1e6 / 4 / (3 * SIDE * SIDE)))
    rng = np.random.default_rng(0)
    for i in range(sites):
        x = rng.integers(0, 256, (16, 3, SIDE, SIDE), dtype=np.uint8)
        np.savez(root / f"data-{i}.npz", x=x, y=np.arange(16) % 2)
    facts: dict[str, Any] = {"classes": ["0", "1"], "image_size": SIDE, "channels": 3, "bounds": (0.0, 255.0)}
    site = {**facts, "cap": "none", "methods": ["fedavg"], "releases": ["weights"], "max_bytes": 2**31}
    run = f'method = "fedavg"\ndata = "{root}/data-0.npz"\nclasses = ["0", "1"]\nimage_size = {SIDE}\nchannels = 3\n'
    run += f'records = 16\nmodel = "mlp:{width}"\n[settings]\nrounds = 2\nepochs = 1\nbatch = 16\n'
    own = lambda i: {"data": str(root / f"data-{i}.npz"), "ledger": str(root / f"ledger-{i}")}  # noqa: E731
    with Federation(root, sites, run, site=site, own=own) as made:
        for name in made.names:
            subprocess.run([sys.executable, "-m", "prismfl", "site", "check", name], cwd=root, check=True)
        made.serve()
        made.join(made.names)
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
        began = time.monotonic()
        peak = {"server": 0.0, "site": 0.0}

        def look() -> bool:
            assert made.server is not None
            peak["server"] = max(peak["server"], memory_of(made.server.pid)["proportional MB"])
            peak["site"] = max(peak["site"], memory_of(made.sites["site-0"].pid)["proportional MB"])
            time.sleep(1)
            return made.over()

        try:
            made.wait("the end", look, 3600)
        finally:
            for process in others:
                process.kill()
        run_directory = made.directory()
        link = (root / "server" / "superlink.log").read_text(errors="replace")
        found = {
            "sites": sites,
            "width": width,
            "busy processes beside": busy,
            "bytes of a reply": run_directory.metrics()[0]["bytes_up"] // sites,
            "seconds in all": round(time.monotonic() - began, 1),
            "seconds by round": [row["seconds"] for row in run_directory.metrics()],
            "status": run_directory.status,
            "faults": [f"{f.round + 1} {f.site} {f.code}" for f in faults(run_directory)],
            "locked databases in the SuperLink's log": link.count("database is locked"),
            "answers of 500 or 503 in its log": link.count(" 500 ") + link.count(" 503 "),
            "connections lost and found at sites": made.log().count(b"answers again"),
            "server's peak MB": peak["server"],
            "a site's peak MB": peak["site"],
        }
        save(f"large, {megabytes:g} MB", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("idle", "rounds", "large"))
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--busy", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PRISMFL_LEDGER"] = str(Path(folder) / "ledger")
        if given.what == "idle":
            idle(Path(folder) / "idle")
        elif given.what == "rounds":
            rounds(Path(folder), given.sites, given.rounds)
        else:
            large(Path(folder), given.sites, given.megabytes, given.busy)


if __name__ == "__main__":
    main()
