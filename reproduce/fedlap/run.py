"""FedLAP-DP's Table 2: python reproduce/fedlap/run.py [--only mnist fedlap-dp] [--seeds 0 1] [--rounds 1].

Five sites with two classes each, the paper's ConvNet, sigma 1, delta 1e-5. Each row is a preset (presets/fedlap) as
`prismfl run` takes it, in a directory of its own under --runs. A row that was cut off goes on where it was (a site's
release that was made is not made again); finished rows are kept in the results file. Seeds are the outer loop, so that
a first number of every row comes early.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from prismfl import runtime
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.runs import planning, records, simulate
from prismfl.runs.config import read
from prismfl.runs.directory import RunDirectory

HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets" / "fedlap"
DATA = ("mnist", "fashion-mnist", "cifar10")
COMPARED = ("fedlap-dp", "dp-fedprox", "dp-fedavg")


def preset(data: str, method: str, *, rounds: int) -> dict[str, Any]:
    """A row's settings. README.md says how they were chosen."""
    found = read(PRESETS / f"{data}-{method}-rounds1.toml")
    return {**found, "settings": {**found["settings"], "rounds": rounds}}


def run_row(data: str, method: str, *, seed: int, rounds: int, folder: Path) -> dict[str, Any]:
    """One cell; goes on where an earlier call was cut off."""
    started = time.process_time()
    if (folder / "run.json").exists():
        result = simulate.resume(folder)
    else:
        options = preset(data, method, rounds=rounds)
        result = simulate.run(planning.configure({**options, "seed": seed, "out": str(folder)}))
    directory = RunDirectory.open(folder)
    stored = directory.read_json("config.json")
    config = planning.configure({k: v for k, v in stored.items() if k not in ("run", "created")})
    task = planning.task_of(config, records.spec_of(config), METHODS[method])
    costs = [
        METHODS[method].plan(METHODS[method].settings(**{**config.settings, "rounds": done}), task)
        for done in range(1, rounds + 1)
    ]
    by_round, cost = [round(account.epsilon_rdp(c, config.delta), 3) for c in costs], costs[-1]
    return {
        "accuracy": result.accuracy,
        "epsilon_rdp": by_round[-1],
        "epsilon_tight": round(account.epsilon(cost, config.delta), 3),
        "delta": config.delta,
        "records_declared": task.records,
        "cost": cost.describe(),
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "cpu_minutes": round((time.process_time() - started) / 60, 1),
        "accuracy_by_round": [row["accuracy"] for row in directory.metrics()],
        "epsilon_rdp_by_round": by_round,
        "settings": config.settings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that a row must contain, e.g. mnist fedlap-dp")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/reproduce-fedlap"), help="run directories are kept here"
    )
    args = parser.parse_args()
    runtime.tune()
    for seed in args.seeds:
        for method in COMPARED:
            for data in DATA:
                name = f"{data} {method} rounds{args.rounds} seed{seed}"
                done = json.loads(args.out.read_text()) if args.out.exists() else []
                if not set(args.only) <= set(name.split()) or any(row["name"] == name for row in done):
                    continue
                folder = args.runs / name.replace(" ", "_")
                row = {"name": name, **run_row(data, method, seed=seed, rounds=args.rounds, folder=folder)}
                done = json.loads(args.out.read_text()) if args.out.exists() else []
                args.out.write_text(json.dumps([*done, row], indent=1) + "\n")
                print(f"{name}: {row['accuracy']:.2f} %, epsilon {row['epsilon_rdp']} (RDP)", flush=True)


if __name__ == "__main__":
    main()
