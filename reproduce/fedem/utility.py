"""Accuracy at the paper's length: 30 epochs of 3000 records a site, several seeds. run.py attacks the models it leaves.

    python reproduce/fedem/utility.py --data-dir DATA --out OUT --data mnist --epochs 30 --seeds 0 1 --rows FedSGD FedEM

Nothing is chosen here: the settings are the paper's, and the figure is the one after the last epoch. The accuracies on
the way are kept to show how far a run still moves.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from run import EPOCH, Bench, Row, main_rows, model_file

from prismfl import runtime
from prismfl.core.method import State

LOOK_EVERY = 5


def train(bench: Bench, row: Row, *, epochs: int) -> tuple[State, dict[int, float]]:
    """The last state, and the test accuracy every few epochs."""
    rounds, seen = epochs * EPOCH, {}
    cfg, state = bench.settings(row, rounds=rounds), bench.first(row, rounds=rounds)
    for r in range(rounds):
        state = bench.round(row, cfg, state)
        if (r + 1) % EPOCH == 0 and ((r + 1) // EPOCH % LOOK_EVERY == 0 or r + 1 == rounds):
            seen[(r + 1) // EPOCH] = bench.accuracy(state)
    return state, seen


def measure(bench: Bench, row: Row, *, epochs: int, out: Path) -> None:
    path = out / f"utility-{bench.name}.json"
    done: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    if any((line["label"], line["seed"], line["epochs"]) == (row.label, bench.seed, epochs) for line in done):
        return
    began, cpu = time.time(), time.process_time()
    state, seen = train(bench, row, epochs=epochs)
    file = model_file(out, bench.name, row.label, bench.seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(dict(state.items["model"].tensors), file)
    line = {
        "label": row.label,
        "seed": bench.seed,
        "epochs": epochs,
        "model": bench.task.model,
        "accuracy": seen[epochs],
        "by epoch": seen,
        "seconds": round(time.time() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }
    # Read again: another process may have written its rows meanwhile.
    done = json.loads(path.read_text()) if path.exists() else []
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in [*done, line]) + "\n]\n")
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", choices=["mnist", "fashion-mnist", "cifar10"], default="mnist")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", nargs="+", default=[""], help="only rows whose label starts so")
    args = parser.parse_args()
    runtime.tune(1)
    for seed in args.seeds:
        bench = Bench(args.data, args.data_dir, seed)
        for row in main_rows(args.data):
            if row.label.startswith(tuple(args.rows)):
                measure(bench, row, epochs=args.epochs, out=args.out)


if __name__ == "__main__":
    main()
