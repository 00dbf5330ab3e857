"""What a simulated site costs, from 50 sites to 10,000: seconds, memory, open files and disk.

    python benchmarks/scale.py [--sites 50 500 2000 10000] [--cases dp-fedavg prism-head] [--workers 1 2] [--again]
    python benchmarks/scale.py --axes records parameters rounds [--again]

A case is one round of every site, 200 records each; `dp-fedavg, 1 %` is 100 rounds of one site in a hundred. The
records of a site are 200 rows of MNIST's 60,000 (or of the 5,000 that come with the package), so that sites share them:
memory for records is the same for every number of sites. Ledger, transcript and checkpoint are kept, as in every run.

An axis is dp-fedavg on an MLP by something else than sites: one site by its records (20 steps, expected batch 256), one
site of 200 records by the network's numbers (4 steps), and 50 sites by rounds. Saved as `results/slopes.json`;
`scale_page.py` makes the page of both.

Each cell runs in a process of its own and is saved when it is done; cells that are there already are not run again.
Peak memory is of the main process, above what it holds before the sites are set up.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from alternate import RESULTS, in_own_process, peak_of, save, say, table

RECORDS, COUNTS = 200, (50, 500, 2000, 10_000)
STEPS = {"steps": 4, "batch": 50, "clip": 0.1, "lr": 0.5, "sigma": 1.0}
HEAD = {"rounds": 1, "sigma": 0.6, "networks": 0, "rank": 128, "covariance": 128, "power": 0.4, "spectrum": "cleaned"}
"""As `tuning = auto` chooses them for 50 sites; the centre is left out."""
CASES: dict[str, dict[str, Any]] = {
    "dp-fedavg": {"method": "dp-fedavg", "model": "mlp", "settings": {**STEPS, "rounds": 1}},
    "prism-head": {"method": "prism-head", "settings": HEAD},
    "fedlap-dp": {"method": "fedlap-dp", "settings": {"rounds": 1, "sigma": 1.0}},
    "dp-fedavg, 1 %": {
        "method": "dp-fedavg",
        "model": "mlp",
        "participation": 0.01,
        "settings": {**STEPS, "rounds": 100},
    },
}
AXES: dict[str, tuple[int, ...]] = {
    "records": (1_000, 10_000, 100_000, 1_000_000),
    "parameters": (10_000, 100_000, 1_000_000, 25_000_000),
    "rounds": (1, 10, 100),
}
INPUTS, CLASSES = 28 * 28, 10
LOOKS = 50  # how many times disk and open files are looked at


class Watch:
    """The most files that are open in this process, and the most bytes below a folder, looked at now and then."""

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every, self.calls = folder, every, 0
        self.files = self.disk = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        if self.calls % self.every == 0:
            self.look()
        self.calls += 1

    def look(self) -> int:
        """The bytes below the folder now, as the disk counts them."""
        self.files = max(self.files, len(os.listdir("/proc/self/fd")))
        now = sum(path.lstat().st_blocks * 512 for path in self.folder.rglob("*"))
        self.disk = max(self.disk, now)
        return now


def on_axis(axis: str, size: int) -> dict[str, Any]:
    """One run at a place of an axis, measured in this process."""
    sites, records, rounds, model, steps = 1, RECORDS, 1, "mlp", STEPS
    if axis == "records":
        records, steps = size, {**STEPS, "steps": 20, "batch": 256}
    elif axis == "parameters":
        model = f"mlp:{max(1, round((size - CLASSES) / (INPUTS + 1 + CLASSES)))}"
    else:
        sites, rounds = 50, size
    case = {"method": "dp-fedavg", "model": model, "memory": 8.0, "settings": {**steps, "rounds": rounds}}
    return cell(case, sites, 1, records)


def cell(case: Mapping[str, Any], sites: int, workers: int, records: int = RECORDS) -> dict[str, Any]:
    """One run, measured in this process."""
    from dataclasses import replace

    from prismfl import runtime
    from prismfl.core.job import Job
    from prismfl.methods import METHODS
    from prismfl.runs.config import RunConfig
    from prismfl.runs.directory import RunDirectory
    from prismfl.runs.encoders import encoder_of, ready
    from prismfl.runs.hosts import open_hosts
    from prismfl.runs.planning import public_images_of, resolve, task_of
    from prismfl.runs.records import read_data
    from prismfl.transport import in_process
    from prismfl.transport.workers import transport

    runtime.tune()
    data = "mnist" if (Path(os.environ.get("PRISMFL_DATA", "")) / "mnist").is_dir() else "mnist-5k"
    config = RunConfig(data=data, sites=sites, records=records, seed=0, tuning="fixed", noise="seeded", **case)
    method, dataset = METHODS[config.method], read_data(config)
    task = task_of(config, dataset.spec, method, public_images_of(config, dataset.spec, method, say))
    task = replace(task, encoder=ready(encoder_of(config, method), task)) if method.takes_encoder else task
    job = Job("scale", method, resolve(config, task, method), task, 0)
    _ = job.shapes
    rng = np.random.default_rng(0)
    took: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(Path(folder), every=max(1, 2 * sites // LOOKS))
        directory = RunDirectory.create(Path(folder) / "run", {}, {})

        def one() -> None:
            start, cpu = time.perf_counter(), _cpu()
            parts = [rng.integers(0, len(dataset.y_train), records) for _ in range(sites)]
            hosts, hub = open_hosts(job, config, dataset, parts, folder=directory.path)
            in_process.run(job, hosts, directory=directory, hub=hub, progress=watch, transport=transport(workers))
            hosts[0].ledger.close(job.run, forget=True)
            hosts[0].ledger.shrink()
            hosts[0].ledger.shut()
            took.update(wall=time.perf_counter() - start, cpu=_cpu() - cpu)

        watch.look()
        peak = peak_of(one)
        left = watch.look()
    asked = task.asked * job.settings.rounds
    return {
        "wall ms a site": 1000 * took["wall"] / asked,
        "CPU ms a site": 1000 * took["cpu"] / asked,
        "wall s": took["wall"],
        "peak MB": round(peak),
        "open files": watch.files,
        "disk kB a site": left / 1000 / sites,
        "most disk kB a site": watch.disk / 1000 / sites,
    }


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def known(name: str) -> list[dict[str, Any]]:
    """The rows of earlier runs."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []


def measure(file: str, names: Sequence[Mapping[str, Any]], *, again: bool) -> None:
    """Every cell that is not there yet, each in a process of its own, saved when it is done."""
    rows = known(file)
    for name in names:
        old = [row for row in rows if name.items() <= row.items()]
        if old and not again:
            continue
        load = os.getloadavg()[0]
        found = in_own_process(__file__, "--cell", *(str(value) for value in name.values()))
        machine = "quiet machine" if load < 0.5 else f"busy machine (load {load:.0f})"
        new = {**name, **found, "measured on": machine}
        rows = [row for row in rows if row not in old] + [new]
        rows.sort(key=lambda row: [row[key] for key in name])
        save(file, {"rows": rows})
        say(table([new]))
    say(table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=["dp-fedavg", "prism-head"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--axes", nargs="+", choices=list(AXES), help="by these instead of by sites")
    parser.add_argument("--again", action="store_true", help="run cells that are there already once more")
    parser.add_argument("--cell", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        case, *sizes = given.cell
        found = on_axis(case, int(sizes[0])) if case in AXES else cell(CASES[case], *map(int, sizes))
        sys.stdout.write(json.dumps(found) + "\n")
    elif given.axes:
        places = [{"axis": axis, "size": size} for axis in given.axes for size in AXES[axis]]
        measure("slopes", places, again=given.again)
    else:
        names = [
            {"case": case, "sites": sites, "workers": workers}
            for case in given.cases
            for sites in given.sites
            for workers in given.workers
        ]
        measure("scale", names, again=given.again)


if __name__ == "__main__":
    main()
