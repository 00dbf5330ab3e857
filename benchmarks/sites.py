"""Many sites on one machine: prismfl's local engine against Flower's Ray simulation, from start to end.

    python benchmarks/sites.py [--rounds 3] [--cases 50:mlp 50:lenet 1000:mlp] [--ray PYTHON]

The work: one federated round in which every site makes one DP-SGD epoch over 200 images of 28x28 (4 steps, expected
batch 50). Both sides call the same `noisy_gradient`, so that only the engines differ. Wall time runs from starting the
process to its end; CPU time is that of all processes that a side starts. The sides take turns, and who begins changes
from round to round. A case is saved when it is done.

What each side keeps: prismfl a ledger with a charge for every site, the transcript with the digest of every message,
the checkpoint and the measured accuracy; Flower nothing. Both use the cores they find: prismfl a worker a physical
core, Ray a client a core. PYTHON is one in which Ray is installed beside all of prismfl's own packages.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from alternate import RESULTS, children_cpu, ratio, save, say, table, whole_family

RECORDS, BATCH, STEPS, CLIP, SIGMA, LR = 200, 50, 4, 0.1, 1.0, 0.5
CASES = ("50:mlp", "50:lenet", "1000:mlp")
SHAPE = (1, 28, 28)


def write_data(path: Path, sites: int) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", sites * RECORDS), ("test", 500)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, *SHAPE[1:]), dtype=np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count)
    np.savez(path, **arrays)


def config(data: Path, model: str, sites: int, out: Path) -> dict[str, Any]:
    settings = {"rounds": 1, "steps": STEPS, "batch": BATCH, "clip": CLIP, "sigma": SIGMA, "lr": LR}
    common = {"method": "dp-fedavg", "data": str(data), "model": model, "sites": sites, "records": RECORDS}
    common |= {"image_size": SHAPE[1], "channels": SHAPE[0]}  # declared in full: the file is read once
    return {**common, "classes": [str(c) for c in range(10)], "seed": 0, "out": str(out), "settings": settings}


def ours(data: Path, model: str, sites: int) -> Callable[[], object]:
    def one() -> None:
        with tempfile.TemporaryDirectory() as folder:
            file, wanted = Path(folder) / "config.json", config(data, model, sites, Path(folder) / "run")
            file.write_text(json.dumps({**wanted, "ledger": f"{folder}/ledger"}), encoding="utf-8")
            _start(sys.executable, "-m", "prismfl", "run", str(file), "--format", "json")

    return one


def flower(data: Path, model: str, sites: int, python: str) -> Callable[[], object]:
    return lambda: _start(python, __file__, "--flower", str(data), model, str(sites))


def _start(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")


def _records(data: str, site: int) -> tuple[Any, Any]:
    import torch

    rows = slice(site * RECORDS, (site + 1) * RECORDS)
    with np.load(data) as arrays:
        x, y = arrays["x_train"][rows], arrays["y_train"][rows]
    return torch.from_numpy(x).unsqueeze(1).float() / 255.0, torch.from_numpy(y)


def local_epoch(data: str, model: str, site: int, params: dict[str, Any]) -> dict[str, Any]:
    """What a Flower client does: the same steps as a site of dp-fedavg."""
    from prismfl import runtime
    from prismfl.core.door import PrivateRecords
    from prismfl.core.records import Records
    from prismfl.nets.classifier import build
    from prismfl.nets.training import descend
    from prismfl.rng import Key

    runtime.tune()
    x, y = _records(data, site)
    noise = Key.seed(0).child("noise", site).noise()
    door = PrivateRecords(Records(x, y), declared=RECORDS, classes=10, noise=noise)
    classifier, _ = build(model, SHAPE, 10, key=Key.seed(0))

    def gradient(now: dict[str, Any], _: int) -> dict[str, Any]:
        return door.noisy_gradient(classifier.record_loss, now, batch=BATCH, clip=CLIP, sigma=SIGMA)

    return descend(params, gradient, steps=STEPS, lr=LR)


def simulate(data: str, model: str, sites: int) -> None:
    """One round of FedAvg over all sites in Flower's Ray simulation."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        import torch  # noqa: F401 - Flower converts arrays only where torch is loaded

        params = dict(message.content["arrays"].to_torch_state_dict())
        after = local_epoch(data, model, int(context.node_config["partition-id"]), params)
        reply = {"arrays": ArrayRecord(after), "metrics": MetricRecord({"num-examples": RECORDS})}
        return Message(content=RecordDict(reply), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        from prismfl.nets.classifier import build
        from prismfl.rng import Key

        _, params = build(model, SHAPE, 10, key=Key.seed(0))
        strategy = FedAvg(fraction_evaluate=0.0)
        found = strategy.start(grid=grid, initial_arrays=ArrayRecord(params), num_rounds=1)
        moved = found.arrays.to_torch_state_dict()
        if all(bool((moved[name] == p).all()) for name, p in params.items()):
            raise RuntimeError("The round changed nothing: no client has answered.")

    run_simulation(server, client, sites, backend_config={"client_resources": {"num_cpus": 1}})


def compared(case: str, rounds: int, python: str) -> dict[str, Any]:
    """Both sides of a case in turns."""
    sites, model = int(case.partition(":")[0]), case.partition(":")[2]
    times: dict[str, dict[str, list[float]]] = {"wall": {}, "CPU": {}}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        write_data(data, sites)
        sides = {"prismfl": ours(data, model, sites), "flower": flower(data, model, sites, python)}
        for done in range(rounds):
            for name in list(sides) if done % 2 == 0 else list(sides)[::-1]:
                before, start = children_cpu(), time.perf_counter()
                sides[name]()
                times["wall"].setdefault(name, []).append(time.perf_counter() - start)
                times["CPU"].setdefault(name, []).append(children_cpu() - before)
    row: dict[str, Any] = {"sites": sites, "network": model, "rounds": rounds}
    for what, by_side in times.items():
        row |= {f"{name}, {what} s": statistics.median(by_side[name]) for name in sides}
        row[f"{what} ratio"] = ratio(by_side, "flower", "prismfl")
    return row


def known() -> list[dict[str, Any]]:
    """The rows of cases that were measured before."""
    file = RESULTS / "sites.json"
    return json.loads(file.read_text(encoding="utf-8"))["against Flower"] if file.is_file() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--ray", default=sys.executable, help="the Python that has Ray")
    parser.add_argument("--flower", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flower:
        data, model, sites = given.flower
        simulate(data, model, int(sites))
        return
    whole_family()
    rows = known()
    for case in given.cases:
        load = os.getloadavg()[0]
        machine = {"measured on": "quiet machine" if load < 0.5 else f"busy machine (load {load:.0f})"}
        row = {**compared(case, given.rounds, given.ray), **machine}
        rows = [old for old in rows if (old["sites"], old["network"]) != (row["sites"], row["network"])] + [row]
        save("sites", {"against Flower": rows})
        say(table([row]))
    say(table(rows))


if __name__ == "__main__":
    main()
