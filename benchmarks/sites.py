"""Many sites on one machine: prismfl's local engine against Flower's Ray simulation, and the cost of a site.

    python benchmarks/sites.py [--rounds 3]

The work: one federated round in which every site makes one DP-SGD epoch over 200 images of 28x28 (4 steps, expected
batch 50). Both sides call the same `noisy_gradient`, so that only the engines differ. prismfl keeps in addition a
ledger a site, the transcript and the checkpoint, and measures the accuracy; Flower does none of that here. Wall time
runs from starting the process to its end; CPU time is that of all processes that a side starts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from alternate import children_cpu, in_own_process, peak_of, ratio, save, say, table, whole_family

RECORDS, BATCH, STEPS, CLIP, SIGMA, LR = 200, 50, 4, 0.1, 1.0, 0.5
SITES, MODELS, COUNTS = 50, ("mlp", "lenet"), (5, 20, 50, 100, 200)
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
    return {**common, "classes": [str(c) for c in range(10)], "out": str(out), "settings": settings}


def ours(data: Path, model: str) -> Callable[[], object]:
    def one() -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(config(data, model, SITES, Path(folder) / "run")), encoding="utf-8")
            _start("-m", "prismfl", "run", str(file), "--format", "json")

    return one


def flower(data: Path, model: str) -> Callable[[], object]:
    return lambda: _start(__file__, "--flower", str(data), model)


def _start(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
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


def simulate(data: str, model: str) -> None:
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

    run_simulation(server, client, SITES, backend_config={"client_resources": {"num_cpus": 1}})


def scale(data: Path, sites: int) -> dict[str, float]:
    """CPU and wall seconds of a whole run after the imports, and its peak memory, in this process."""
    from prismfl.runs.config import RunConfig
    from prismfl.runs.simulate import run

    took = {}

    def one() -> None:
        with tempfile.TemporaryDirectory() as folder:
            wanted = RunConfig(**config(data, "mlp", sites, Path(folder) / "run"))
            start, wall = time.process_time(), time.perf_counter()
            run(wanted)
            took["cpu"], took["wall"] = time.process_time() - start, time.perf_counter() - wall

    peak = peak_of(one)
    return {**took, "peak": peak}


def against_flower(rounds: int) -> list[dict[str, Any]]:
    rows = []
    whole_family()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        write_data(data, SITES)
        for model in MODELS:
            sides = {"prismfl": ours(data, model), "flower": flower(data, model)}
            cpu: dict[str, list[float]] = {side: [] for side in sides}
            wall: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(rounds):
                for name, side in sides.items():
                    before, start = children_cpu(), time.perf_counter()
                    side()
                    wall[name].append(time.perf_counter() - start)
                    cpu[name].append(children_cpu() - before)
            rows.append(
                {
                    "network": model,
                    **{f"{name}, wall s": statistics.median(values) for name, values in wall.items()},
                    "wall ratio": ratio(wall, "flower", "prismfl"),
                    **{f"{name}, CPU s": statistics.median(values) for name, values in cpu.items()},
                    "CPU ratio": ratio(cpu, "flower", "prismfl"),
                }
            )
    return rows


def by_number(rounds: int) -> list[dict[str, Any]]:
    found: dict[int, list[dict[str, float]]] = {count: [] for count in COUNTS}
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            write_data(Path(folder) / f"{count}.npz", count)
        for _ in range(rounds):
            for count in COUNTS:
                found[count].append(in_own_process(__file__, "--scale", f"{folder}/{count}.npz", str(count)))
    return [
        {
            "sites": count,
            "CPU s": statistics.median(one["cpu"] for one in runs),
            "CPU ms a site": 1000 * statistics.median(one["cpu"] for one in runs) / count,
            "wall s": statistics.median(one["wall"] for one in runs),
            "peak MB": round(statistics.median(one["peak"] for one in runs)),
        }
        for count, runs in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flower", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--scale", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flower:
        simulate(*arguments.flower)
    elif arguments.scale:
        sys.stdout.write(json.dumps(scale(Path(arguments.scale[0]), int(arguments.scale[1]))) + "\n")
    else:
        growth = by_number(arguments.rounds)
        say(table(growth))
        rows = against_flower(arguments.rounds)
        say(table(rows))
        save("sites", {"rounds": arguments.rounds, "against Flower": rows, "by number of sites": growth})


if __name__ == "__main__":
    main()
