"""The order of the methods over rounds, small enough for minutes: python reproduce/fedlap/quick.py [--rounds 4].

5,000 digits, five sites with two classes each, a ConvNet of width 8. Without privacy FedLAP against FedDM, FedAvg
and FedProx; with privacy (the same noise and number of queries for all) FedLAP-DP against FedDM-DP, DP-FedAvg and
DP-FedProx. The settings are presets/fedlap-quick. Writes results-quick.json and the figures of the
FedLAP runs.
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
from prismfl.report import figures
from prismfl.runs import planning, simulate
from prismfl.runs.config import read
from prismfl.runs.directory import RunDirectory

HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets" / "fedlap-quick"
EXACT = ("fedlap", "feddm", "fedavg", "fedprox")
PRIVATE = ("fedlap-dp", "feddm-dp", "dp-fedavg", "dp-fedprox")
TASK = ("data", "split", "sites", "model", "transcript")


def preset(method: str, *, rounds: int, sigma: float) -> dict[str, Any]:
    """A row's settings, for another number of rounds or another noise if asked."""
    found = read(PRESETS / f"{method}.toml")
    changed = {"rounds": rounds, **({"sigma": sigma} if method in PRIVATE else {})}
    return {**found, "settings": {**found["settings"], **changed}}


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
    for method in (*EXACT, *PRIVATE):
        folder = args.runs / method
        shutil.rmtree(folder, ignore_errors=True)
        options = preset(method, rounds=args.rounds, sigma=args.sigma)
        started = time.process_time()
        result = simulate.run(planning.configure({**options, "seed": args.seed, "out": str(folder)}))
        curve = [row["accuracy"] for row in RunDirectory.open(folder).metrics()]
        rows.append(
            {
                "method": method,
                "epsilon": result.epsilon,
                "accuracy_by_round": curve,
                "bytes": result.bytes_up + result.bytes_down,
                "cpu_seconds": round(time.process_time() - started, 1),
                "settings": options["settings"],
            }
        )
        spent = "no guarantee" if result.epsilon is None else f"epsilon {result.epsilon:.2f}"
        sys.stdout.write(
            f"{method:12s} {spent:14s} {' '.join(f'{a:5.1f}' for a in curve)}  {rows[-1]['cpu_seconds']} s\n"
        )
        sys.stdout.flush()
    args.out.mkdir(parents=True, exist_ok=True)
    task = {key: options[key] for key in TASK}
    (args.out / "results-quick.json").write_text(
        json.dumps({"task": task, "seed": args.seed, "rows": rows}, indent=1) + "\n"
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
