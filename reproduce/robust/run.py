"""One hostile site of five: accuracy with it, without it, and of five honest ones. Writes results.json and README.md.

python reproduce/robust/run.py [--only METHOD]

Rows that are in results.json already are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from prismfl import experiment, runtime
from prismfl.method import Items, State
from prismfl.payloads import Payload

HERE = Path(__file__).parent
BAD = "site-4"
TASK = {"sites": 5, "split": "iid", "epsilon": 2.0, "seed": 0, "transcript": "digests"}
PRISM = {"data": "mnist-5k", "model": "convnet:8"}
SMALL = {"networks": 8, "network_width": 8, "network_features": 32, "atoms": 64, "rank": 64, "covariance": 64}
PICTURES = {"images": 20, "steps": 60, "train_steps": 150, "copies": 4}
RUNS: dict[str, dict[str, Any]] = {
    "dp-fedavg": {"data": "mnist-5k", "model": "logreg", "settings": {"rounds": 5, "steps": 20, "batch": 128}},
    "prism-head": {**PRISM, "settings": SMALL},
    "prism": {**PRISM, "settings": {**SMALL, **PICTURES}},
    "prism-local": {**PRISM, "epsilon": 8.0, "settings": {**SMALL, **PICTURES}},
    "3dgl": {"data": "digits", "model": "logreg", "epsilon": 8.0,
             "settings": {"queries": 30, "start": 15, "latent": 2, "conv": 4, "candidates": (1000,), "samples": 100}},
}  # fmt: skip
Forge = Callable[[str, str, torch.Tensor], torch.Tensor]


def times(factor: float) -> Forge:
    def forge(item: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or name == "spent":
            return tensor
        return (factor * tensor.double()).clamp(-3e38, 3e38).to(tensor.dtype)

    return forge


def filled(value: float) -> Forge:
    def forge(item: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        return torch.full_like(tensor, value) if tensor.is_floating_point() and name != "spent" else tensor

    return forge


def rolled(factor: float) -> Forge:
    """Everything of a class under the name of the next one; a model's outputs likewise."""

    def forge(item: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if item == "synthetic":  # images stay where they are, so that their places and labels agree
            return tensor.roll(len(tensor) // 10, 0) if name == "x" else (factor * tensor).to(tensor.dtype)
        if item == "model" and tensor.shape[0] == 10:
            return factor * tensor.roll(1, 0)
        if name in ("sums", "counts"):
            return factor * tensor.roll(1, 0)
        return tensor

    return forge


ATTACKS: dict[str, Forge] = {
    "-1x": times(-1.0),
    "100x": times(100.0),
    "-100x": times(-100.0),
    "1e30": filled(1e30),
    "3e38": filled(3e38),
    "labels rolled": rolled(1.0),
    "labels rolled x4": rolled(4.0),
    "labels rolled x10": rolled(10.0),
}
COLUMNS = ("five honest", "honest four", *ATTACKS)
BACKWARDS = "update x -2"  # as long as the clip at the server lets through


def forged(items: Items, forge: Forge, attack: str) -> Items:
    out: dict[str, Payload] = {}
    for item, payload in items.items():
        tensors = dict(payload.tensors)
        if item == "generator" and attack.startswith("labels rolled"):
            tensors = next_class(tensors, {"x4": 4.0, "x10": 10.0}.get(attack.rpartition(" ")[2], 1.0))
        else:
            tensors = {name: forge(item, name, t) for name, t in tensors.items()}
        out[item] = type(payload)(tensors, payload.spec)
    return out


def next_class(tensors: dict[str, torch.Tensor], factor: float) -> dict[str, torch.Tensor]:
    """Each decoder under the number of the next class; sizes times a factor."""
    out = {}
    for name, tensor in tensors.items():
        kind, part, rest = [*name.split(".", 2), "", ""][:3]
        out[name] = tensors[f"{kind}.{(int(part) - 1) % 10}.{rest}"] if part.isdigit() else factor * tensor.roll(1)
    return out


def score(method: str, attack: str) -> tuple[float, list[str]]:
    """Accuracy in percent and who was left out; the site that is not heard sends nothing that counts."""
    options = {**TASK, **RUNS[method], "method": method}
    found = experiment.find_method(method)

    def client(cfg: Any, state: State, site: Any, key: Any) -> tuple[Items, Items]:
        items, memory = found.client(cfg, state, site, key)
        if site.name != BAD or attack == "five honest":
            return items, memory
        if attack == "honest four":
            return {k: type(p)(p.tensors, {"not": "heard"}) for k, p in items.items()}, memory
        if attack == BACKWARDS:
            start, sent = state.items["model"].tensors, items["model"].tensors
            return {
                "model": type(items["model"])({k: start[k] - 2.0 * (v - start[k]) for k, v in sent.items()})
            }, memory
        return forged(items, ATTACKS[attack], attack), memory

    known = experiment.METHODS
    with tempfile.TemporaryDirectory() as folder:
        known[method] = replace(found, client=client)
        try:
            result = experiment.run(experiment.configure({**options, "out": f"{folder}/run"}))
        finally:
            known[method] = found
        faults = Path(folder) / "run" / "faults.jsonl"
        lines = faults.read_text().splitlines() if faults.exists() else []
    assert result.accuracy is not None
    return float(result.accuracy), sorted({json.loads(line)["site"] for line in lines})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(RUNS))
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    runtime.tune(1)
    file = args.out / "results.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for method in [args.only] if args.only else RUNS:
        for attack in (*COLUMNS, *([BACKWARDS] if method == "dp-fedavg" else [])):
            if attack in done.setdefault(method, {}):
                continue
            started = time.process_time()
            try:
                accuracy, left_out = score(method, attack)
                row: dict[str, Any] = {"accuracy": round(accuracy, 1), "left_out": left_out}
            except Exception as error:  # the code before issue 20 ends here
                row = {"accuracy": None, "error": f"{type(error).__name__}: {error}"[:200]}
            done[method][attack] = {**row, "cpu_seconds": round(time.process_time() - started, 1)}
            sys.stdout.write(f"{method} {attack}: {done[method][attack]}\n")
            sys.stdout.flush()
            file.write_text(json.dumps(done, indent=1) + "\n")
    readme = args.out / "README.md"
    if readme.exists():
        head, _, rest = readme.read_text().partition("<!-- table -->\n")
        _, _, tail = rest.partition("<!-- end -->\n")
        readme.write_text(f"{head}<!-- table -->\n{table(done)}<!-- end -->\n{tail}")


def table(done: dict[str, Any]) -> str:
    columns = (*COLUMNS, BACKWARDS)
    lines = ["| method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for method, rows in ((method, done[method]) for method in RUNS if method in done):
        cells = []
        for column in columns:
            row = rows.get(column)
            mark = "*" if row and column != "honest four" and row.get("left_out") else ""
            cells.append("-" if row is None else "fails" if row["accuracy"] is None else f"{row['accuracy']:.1f}{mark}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
