"""Fifty sites in one process and in two: whole runs in turns, from the config to the judged model.

    python benchmarks/workers.py [--rounds 3] [--cases dp-fedavg ...] [--workers 2]

MNIST over 50 sites (1,200 records each, 300 for prism) where it is there, else the 5,000 that come with the package.
Reading the data, the server's step and the test count on both sides; they stay in one process. Both sides end with the
same digest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alternate import alternated, ratio, save, say, table

CASES: dict[str, dict[str, Any]] = {
    "dp-fedavg": {
        "method": "dp-fedavg",
        "model": "lenet",
        "settings": {"rounds": 2, "steps": 20, "batch": 128, "clip": 0.1, "lr": 0.5, "sigma": 1.0},
    },
    "prism-head": {
        "method": "prism-head",
        "settings": {"sigma": 0.6, "networks": 0, "rank": 128, "covariance": 128, "spectrum": "cleaned"},
    },
    "prism": {
        "method": "prism",
        "subset": 15_000,
        "settings": {"sigma": 0.6, "images": 20, "steps": 50, "train_steps": 100},
    },
    "fedlap-dp": {
        "method": "fedlap-dp",
        "model": "lenet",
        "settings": {"rounds": 1, "sigma": 1.0, "paths": 1, "stops": 2, "batches": 2, "images": 2, "server_steps": 20},
    },
}


def side(case: str, workers: int, digests: set[str]) -> Callable[[], None]:
    """One whole run."""
    from prismfl.runs import simulate
    from prismfl.runs.config import RunConfig

    data = "mnist" if (Path(os.environ.get("PRISMFL_DATA", "")) / "mnist").is_dir() else "mnist-5k"

    def one() -> None:
        with tempfile.TemporaryDirectory() as folder:
            asked = {key: value for key, value in CASES[case].items() if key != "subset" or data == "mnist"}
            config = RunConfig(data=data, sites=50, seed=0, tuning="fixed", workers=workers, **asked)
            config = config.model_copy(update={"out": f"{folder}/run"})
            digests.add(simulate.run(config).digest)

    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    from prismfl import runtime

    runtime.tune()
    rows = []
    for case in arguments.cases:
        digests: set[str] = set()
        sides = {str(count): side(case, count, digests) for count in (1, arguments.workers)}
        wall = alternated(sides, rounds=arguments.rounds, clock=time.perf_counter)
        rows.append(
            {
                "case": case,
                "one process, s": statistics.median(wall["1"]),
                f"{arguments.workers} workers, s": statistics.median(wall[str(arguments.workers)]),
                "times as fast": ratio(wall, "1", str(arguments.workers)),
                "same digest": len(digests) == 1,
            }
        )
        say(table(rows[-1:]))
        save("workers", {"rounds": arguments.rounds, "rows": rows})


if __name__ == "__main__":
    main()
