"""What each part of PRISM is worth, at a size that runs in minutes: python reproduce/prism/ablation.py [--out FOLDER].

MNIST-5k (4,000 records), five sites with two digits each, epsilon 3, delta 1e-5, convnet:16. One change at a time from
the demo's settings (presets/prism-ablation); rows that are there are kept. Draws the trade-off between "closer to
public" and "more useful".
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from prismfl import runtime
from prismfl.data.datasets import load
from prismfl.data.pictures import grid, save_sheet
from prismfl.data.public import load_public
from prismfl.methods.prism import prism
from prismfl.metrics.visual import compare
from prismfl.rng import Key
from prismfl.runs import planning, simulate
from prismfl.runs.config import read

matplotlib.use("Agg")
HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets"
AS_IN_THE_DEMO = "as in the demo"
CLOSENESS = (0.0, 0.003, 0.01, 0.03, 0.1)


def changes() -> list[str]:
    """What each row is called in the results; its settings are the preset of the same name."""
    found = [f"networks {n}" for n in (4, 24)]
    found += [f"images a class {n}" for n in (5, 50)]
    found += [f"network layers {n}" for n in (2, 3)]
    found += [f"views {v:g}" for v in (0.5, 1.0)]
    found += [f"labels {k}" for k in ("half", "soft")]
    found += [f"public {p}" for p in ("fashion-mnist", "kannada", "omniglot", "tiny-imagenet")]
    found += [f"prism-local, DP-SGD share {s:g}" for s in (0.0, 0.3)]
    return [AS_IN_THE_DEMO, *found, *(f"closeness {c:g}" for c in CLOSENESS[1:])]


def preset(what: str) -> dict[str, Any]:
    name = re.sub("[^a-z0-9.]+", "-", what.lower())
    return read(PRESETS / ("demo/prism.toml" if what == AS_IN_THE_DEMO else f"prism-ablation/{name}.toml"))


def run(what: str, seed: int) -> dict[str, Any]:
    options = preset(what)
    with tempfile.TemporaryDirectory() as scratch:
        result = simulate.run(planning.configure({**options, "seed": seed, "out": f"{scratch}/run"}))
        with np.load(f"{scratch}/run/gen/gen.npz") as made:
            images = torch.tensor(made["x"])
    kept = {k: getattr(result, k) for k in ("accuracy", "epsilon", "bytes_up", "seconds")}
    return {"what": what, "seed": seed, **kept, **looks(images, seed, what, options)}


def looks(images: torch.Tensor, seed: int, what: str, options: dict[str, Any]) -> dict[str, Any]:
    """On site only: distances to private images, and a picture for the first variant."""
    if options["method"] != "prism":
        return {}
    data = load("mnist-5k")
    public = load_public(options["public"], shape=(1, 28, 28), count=2000, key_seed=seed).images
    job = planning.task_of(planning.configure({**options, "seed": seed}), data.spec, prism.METHOD, public)
    seeds = prism.public_seeds(job, len(images), Key.seed(seed).child("server", 0).child("images"))
    found = compare(images, private=data.x_train, held_out=data.x_test, seeds=seeds)
    if what == AS_IN_THE_DEMO and seed == 0:
        rows = torch.arange(0, len(images), max(1, len(images) // 20))[:20]
        triples = torch.stack([seeds[rows], images[rows], data.x_train[found.nearest[rows]]], 1).flatten(0, 1)
        save_sheet(grid(triples, 12), HERE / "seed-synthetic-nearest.png")
    return {"visual": found.as_dict()}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot as plt

    names = {AS_IN_THE_DEMO: 0.0, **{f"closeness {c:g}": c for c in CLOSENESS[1:]}}
    points = sorted((names[r["what"]], r["visual"]["ssim_seed"], r["accuracy"]) for r in rows if r["what"] in names)
    figure, axis = plt.subplots(figsize=(5, 3.4))
    axis.plot([p[1] for p in points], [p[2] for p in points], "o-")
    for closeness, x, y in points:
        axis.annotate(f"{closeness:g}", (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8)
    axis.set_xlabel("similarity to the public seed (median SSIM)")
    axis.set_ylabel("accuracy, %")
    axis.set_title("closeness: closer to public, or more useful", fontsize=10)
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    args = parser.parse_args()
    runtime.tune()
    path = args.out / "results_ablation.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for what in changes():
        for seed in args.seeds:
            if any((row["what"], row["seed"]) == (what, seed) for row in rows):
                continue
            rows.append(run(what, seed))
            print(rows[-1]["what"], rows[-1]["accuracy"], rows[-1].get("visual", {}).get("ssim_seed"), flush=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, args.out / "closeness.png")


if __name__ == "__main__":
    main()
