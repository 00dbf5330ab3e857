"""Reproduces the PRISM table: python reproduce/prism/run.py [--only mnist] [--seeds 0 1 2] [--out results.json].

Each row is a preset (presets/prism) as `prismfl run` takes it, in its own run directory. Finished rows are kept in the
results file and are not run again. The features of a record depend neither on epsilon nor on the seed, so this script
keeps them in memory between rows; the releases are the same as without.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.methods.prism import statistics
from prismfl.methods.prism.encoder import PublicFeatures
from prismfl.runs import planning, simulate
from prismfl.runs.config import read

HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets" / "prism"
EPSILONS = (1, 0.2, 5)
GRADIENT = ("dp-fedavg", "dp-fedprox", "dp-central")


def preset(data: str, method: str, epsilon: float, *, split: str = "fedlap", sites: int = 5) -> dict[str, Any]:
    """A row's settings. How they were chosen, and which choices saw a test figure, is in README.md."""
    words = [data, method * (method != "prism"), split * (split != "fedlap"), f"sites{sites}" * (sites != 5)]
    return read(PRESETS / f"{'-'.join([*filter(None, words), f'eps{epsilon:g}'])}.toml")


def rows() -> list[dict[str, Any]]:
    """Every cell of the table, most wanted first."""
    cells: list[dict[str, Any]] = []

    def add(data: str, methods: Sequence[str], **more: Any) -> None:
        cells.extend(preset(data, method, epsilon, **more) for epsilon in EPSILONS for method in methods)

    for data in ("mnist", "fashion-mnist", "cifar10"):
        add(data, ("prism-head", "prism"))
    for sites in (5, 50):
        add("mnist", ("prism-head", "prism"), sites=sites, split="iid")
    add("celeba-hair", ("prism-head", "prism"), split="iid")
    for data in ("mnist", "fashion-mnist", "cifar10"):
        add(data, GRADIENT)
    for data in ("mnist", "celeba-hair"):
        add(data, GRADIENT, split="iid")
    # Fifty sites in a step take 1,600 records with batches of 32, as five do with the default batch (1,280), or nearly.
    add("mnist", ("dp-fedavg", "dp-fedprox"), sites=50, split="iid")
    return cells


class KeptFeatures:
    """`statistics.record_rows` that remembers the rows of each record it has seen."""

    def __init__(self) -> None:
        self.known: dict[int, torch.Tensor] = {}
        self.encoder: PublicFeatures | None = None
        self.compute = statistics.record_rows

    def __call__(self, enc: PublicFeatures, layout: statistics.RowLayout, x: torch.Tensor) -> torch.Tensor:
        if enc is not self.encoder:
            self.known, self.encoder = {}, enc
        keys = [hash(image.numpy().tobytes()) for image in x]
        new = [i for i, key in enumerate(keys) if key not in self.known]
        if new:
            for i, row in zip(new, self.compute(enc, layout, x[new])):
                self.known[keys[i]] = row.clone()
        return torch.stack([self.known[key] for key in keys])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that a row must contain, e.g. mnist prism fedlap")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--runs", type=Path, default=None, help="keep the run directories here")
    args = parser.parse_args()
    runtime.tune()
    statistics.record_rows = KeptFeatures()  # type: ignore[assignment]
    done = json.loads(args.out.read_text()) if args.out.exists() else []
    for cell in rows():
        words = [cell["data"], cell["method"], cell["split"], f"eps{cell['epsilon']:g}", f"sites{cell['sites']}"]
        if not set(args.only) <= set(words):
            continue
        for seed in args.seeds:
            name = " ".join([*words, f"seed{seed}"])
            if any(row["name"] == name for row in done):
                continue
            started = time.time()
            with tempfile.TemporaryDirectory() as scratch:
                folder = (args.runs or Path(scratch)) / name.replace(" ", "_")
                config = planning.configure({**cell, "seed": seed, "out": str(folder)})
                result = simulate.run(config).as_dict()
            del result["run_dir"]
            row = {
                "name": name,
                "minutes": round((time.time() - started) / 60, 2),
                "settings": cell["settings"],
                **result,
            }
            done = [*(json.loads(args.out.read_text()) if args.out.exists() else []), row]
            args.out.write_text(json.dumps(done, indent=1) + "\n")
            print(f"{name}: {result['accuracy']:.2f} % in {row['minutes']:.1f} min", flush=True)


if __name__ == "__main__":
    main()
