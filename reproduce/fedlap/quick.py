"""The order of the methods over rounds, small enough for minutes: python reproduce/fedlap/quick.py [--rounds 4].

5,000 digits, five sites with two classes each, a ConvNet of width 8. Without privacy FedLAP against FedDM, FedAvg
and FedProx; with privacy (the same noise and number of queries for all) FedLAP-DP against FedDM-DP, DP-FedAvg and
DP-FedProx. Writes results-quick.json and the figures of the FedLAP runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from prismfl import runtime
from prismfl.data.schemes import FEDLAP
from prismfl.report import figures
from prismfl.runs import planning, simulate
from prismfl.runs.directory import RunDirectory

HERE = Path(__file__).parent
TASK = {"data": "mnist-5k", "split": "fedlap", "sites": 5, "model": "convnet:8", "transcript": "full"}
IMAGES = {"public_classes": FEDLAP, "images": 5}
EXACT: dict[str, dict[str, Any]] = {
    "fedlap": {**IMAGES, "stops": 2, "batches": 5, "batch": 64, "radius_records": 64, "server_steps": 60},
    "feddm": {**IMAGES, "networks": 10, "updates": 3, "batch": 64, "server_steps": 60},
    "fedavg": {"epochs": 2},
    "fedprox": {"epochs": 2, "mu": 0.1},
}
PRIVATE: dict[str, dict[str, Any]] = {
    "fedlap-dp": {**IMAGES, "paths": 1, "stops": 4, "batches": 5, "updates": 3, "batch": 64},
    "feddm-dp": {**IMAGES, "networks": 20, "updates": 2, "batch": 64, "server_steps": 60},
    "dp-fedavg": {"steps": 20, "clip": 0.1, "batch": 64, "lr": 1.0},
    "dp-fedprox": {"steps": 20, "clip": 0.2, "batch": 64, "lr": 0.5},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/quick-fedlap"))
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    runtime.tune()
    rows = []
    for method, settings in {**EXACT, **PRIVATE}.items():
        folder = args.runs / method
        shutil.rmtree(folder, ignore_errors=True)
        noise = {"sigma": args.sigma} if method in PRIVATE else {}
        options = {**TASK, "method": method, "seed": args.seed, "out": str(folder)}
        started = time.process_time()
        settings = {"rounds": args.rounds, **noise, **settings}
        result = simulate.run(planning.configure({**options, "settings": settings}))
        curve = [row["accuracy"] for row in RunDirectory.open(folder).metrics()]
        rows.append(
            {
                "method": method,
                "epsilon": result.epsilon,
                "accuracy_by_round": curve,
                "bytes": result.bytes_up + result.bytes_down,
                "cpu_seconds": round(time.process_time() - started, 1),
                "settings": settings,
            }
        )
        spent = "no guarantee" if result.epsilon is None else f"epsilon {result.epsilon:.2f}"
        sys.stdout.write(
            f"{method:12s} {spent:14s} {' '.join(f'{a:5.1f}' for a in curve)}  {rows[-1]['cpu_seconds']} s\n"
        )
        sys.stdout.flush()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "results-quick.json").write_text(
        json.dumps({"task": TASK, "seed": args.seed, "rows": rows}, indent=1) + "\n"
    )
    for name, methods in (("exact", EXACT), ("private", PRIVATE)):
        runs = figures.named([args.runs / method for method in methods])
        figures.progress(runs, args.out / f"quick-{name}-progress.png")
        figures.trust_region(runs, args.out / f"quick-{name}-trust-region.png")
        lead = next(iter(runs.values()))
        figures.stages(lead, args.out / f"quick-{name}-stages.png")
        figures.pixels(lead, args.out / f"quick-{name}-pixels.png")


if __name__ == "__main__":
    main()
