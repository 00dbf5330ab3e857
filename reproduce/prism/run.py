"""Reproduces the PRISM table: python reproduce/prism/run.py [--only mnist] [--seeds 0 1 2] [--out results.json].

Each row is a run of the harness as `prismfl run` makes it, in its own run directory. Finished rows are kept in the
results file and are not run again. The features of a record depend neither on epsilon nor on the seed, so this script
keeps them in memory between rows; the releases are the same as without.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from prismfl import runtime
from prismfl.methods.prism import head as prism_head
from prismfl.runs import planning, simulate

HERE = Path(__file__).parent
MNIST = {"data": "mnist", "public": "kannada+omniglot", "public_count": 8000, "model": "convnet:32"}
FASHION = {**MNIST, "data": "fashion-mnist", "public": "procedural-silhouettes"}
CIFAR = {"data": "cifar10", "public": "tiny-imagenet", "public_count": 25000, "model": "convnet:64"}
FACES = {"data": "celeba-hair", "public": "procedural-portraits", "public_count": 5000, "model": "convnet:32"}
# How these were chosen, and which choices saw a test figure, is in README.md.
DIGITS = {"networks": 32, "views": 0.5, "covariance": 200, "images": 80, "steps": 250, "train_steps": 900}
CLOTHES = {
    "networks": 32, "covariance": 200, "images": 60, "steps": 200, "per_step": 3, "labels": "half", "public_copies": 1,
    "public_share": 0.6, "crop": 1.0, "blends": 1, "centre": False, "train_steps": 1500,
}  # fmt: skip
COLOUR = {
    "networks": 8, "share_networks": 0.1, "share_means": 0.85, "atoms": 256, "patch": 6, "pool": 2, "rank": 2048,
    "covariance": 0, "quantile": 0.5, "ridge": 0.03, "images": 20, "steps": 120, "public_copies": 1, "temperature": 2.0,
    "public_share": 0.9, "crop": 1.0, "labels": "soft", "train_steps": 3000, "train_batch": 32,
}  # fmt: skip
HAIR = {**COLOUR, "networks": 4, "atoms": 32, "patch_stride": 2, "rank": 24, "ridge": 3.0, "train_steps": 1000}
MORE_HAIR = {"rank": 64, "ridge": 1.0, "covariance": 64, "share_covariance": 0.4, "share_means": 0.45}  # for epsilon 5
HEAD_KEYS = set(prism_head.HeadConfig.model_fields)
GRADIENT = {
    "dp-fedavg": {"rounds": 10, "steps": 20},
    "dp-fedprox": {"rounds": 10, "steps": 20},
    "dp-central": {"steps": 200},
}
MANY_SITES_BATCH = 32  # fifty sites in a step take 1,600 records, as five do with the default batch (1,280), or nearly


def settings_of(data: str, epsilon: float) -> dict[str, Any]:
    if data == "cifar10":
        return {**COLOUR, "ridge": {0.2: 1.0, 1: 0.03, 5: 0.01}[epsilon]}
    if data == "celeba-hair":
        return {**HAIR, **(MORE_HAIR if epsilon == 5 else {})}
    return {"mnist": DIGITS, "fashion-mnist": CLOTHES}[data]


def rows() -> list[dict[str, Any]]:
    """Every cell of the table, most wanted first."""
    cells: list[dict[str, Any]] = []

    def add(base: dict[str, Any], method: str, epsilon: float, **more: Any) -> None:
        settings = more.pop("settings", None)
        if settings is None:
            settings = GRADIENT.get(method) or settings_of(base["data"], epsilon)
        if method == "prism-head":
            settings = {k: v for k, v in settings.items() if k in HEAD_KEYS}
        cells.append(
            {**base, "method": method, "epsilon": epsilon, "sites": 5, "split": "fedlap", **more, "settings": settings}
        )

    for base in (MNIST, FASHION, CIFAR):
        for epsilon in (1, 0.2, 5):
            add(base, "prism-head", epsilon)
            add(base, "prism", epsilon)
    for sites in (5, 50):
        for epsilon in (1, 0.2, 5):
            add(MNIST, "prism-head", epsilon, sites=sites, split="iid")
            add(MNIST, "prism", epsilon, sites=sites, split="iid")
    for epsilon in (1, 0.2, 5):
        add(FACES, "prism-head", epsilon, split="iid")
        add(FACES, "prism", epsilon, split="iid")
    for base in (MNIST, FASHION, CIFAR):
        for epsilon in (1, 0.2, 5):
            for method in GRADIENT:
                add({**base, "model": "convnet:32"}, method, epsilon)
    for base in (MNIST, FACES):
        for epsilon in (1, 0.2, 5):
            for method in GRADIENT:
                add(base, method, epsilon, split="iid")
    for epsilon in (1, 0.2, 5):
        for method in ("dp-fedavg", "dp-fedprox"):
            add(MNIST, method, epsilon, sites=50, split="iid", settings={**GRADIENT[method], "batch": MANY_SITES_BATCH})
    return cells


class KeptFeatures:
    """`prism_head.record_rows` that remembers the rows of each record it has seen."""

    def __init__(self) -> None:
        self.known: dict[int, torch.Tensor] = {}
        self.encoder: prism_head.Encoder | None = None
        self.compute = prism_head.record_rows

    def __call__(self, enc: prism_head.Encoder, plan: prism_head.Layout, x: torch.Tensor) -> torch.Tensor:
        if enc is not self.encoder:
            self.known, self.encoder = {}, enc
        keys = [hash(image.numpy().tobytes()) for image in x]
        new = [i for i, key in enumerate(keys) if key not in self.known]
        if new:
            for i, row in zip(new, self.compute(enc, plan, x[new])):
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
    prism_head.record_rows = KeptFeatures()  # type: ignore[assignment]
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
