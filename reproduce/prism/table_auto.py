"""Writes the tables of PRISM without tuning into README.md, and each preset's first line, from results_auto*.json."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

HERE = Path(__file__).parent
PRESETS = HERE.parents[1] / "presets" / "prism-auto"
EPSILONS = ("0.2", "1", "5")
BEGIN, END = "<!-- auto: written by table_auto.py -->", "<!-- end of auto -->"
# What the rows are, which model of the run they show, and what was aimed at for each epsilon.
ROWS: tuple[tuple[str, str, str, tuple[float | None, ...]], ...] = (
    ("MNIST, images only", "mnist_prism", "network", (95, 97, 97.5)),
    ("Fashion-MNIST, images only", "fashion-mnist_prism", "network", (76, 80, 82)),
    ("Fashion-MNIST, model", "fashion-mnist_prism", "head", (80, 84, 86)),
    ("Fashion-MNIST, model with encoder", "fashion-mnist_prism-head_encoder", "head", (82, 86, 87.5)),
    ("CIFAR-10, images only", "cifar10_prism", "network", (52, 54, 56)),
    ("CIFAR-10, model", "cifar10_prism", "head", (53, 59, 62)),
    ("CIFAR-10, model with encoder (128 px)", "cifar10_prism-head_encoder", "head", (78, 82, 84)),
    ("CelebA-Hair, IID, model with encoder", "celeba-hair_prism-head_encoder", "head", (62, 72, 78)),
    ("PneumoniaMNIST, IID, model with encoder", "pneumonia_prism-head_encoder", "head", (None, 85, 87)),
    ("MNIST, IID, 50 sites, secure sum, images only", "mnist_prism_secure", "network", (92, 96, 97)),
    ("MNIST, IID, 50 sites, secure sum, model", "mnist_prism_secure", "head", (None, None, None)),
    ("digits, IID, model", "digits_prism", "head", (None, 70, 88)),
    ("digits, IID, dp-fedavg", "digits_dp-fedavg", "network", (None, 40, 75)),
    ("digits, IID, dp-central", "digits_dp-central", "network", (None, None, None)),
    *(
        (f"{name}, {method}{words}", f"{data}_{method}{end}", "network", (None, None, None))
        for data, name in (
            ("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST"), ("cifar10", "CIFAR-10"),
            ("celeba-hair", "CelebA-Hair"), ("pneumonia", "PneumoniaMNIST"),
        )
        for method in ("dp-fedavg", "dp-central")
        for end, words in (("", ""), ("_encoder", " on the same encoder"))
    ),
)  # fmt: skip


def results() -> dict[str, list[dict[str, Any]]]:
    """The finished runs of each preset, a seed each."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(HERE.glob("results_auto*.json")):
        for name, row in json.loads(file.read_text()).items():
            found[name.rpartition("_seed")[0]].append(row)
    return found


def cell(rows: list[dict[str, Any]], model: str, aim: float | None) -> str:
    """Mean over seeds, with what was aimed at."""
    scores = [row["models"][model]["accuracy"] for row in rows if model in row["models"]]
    if not scores:
        return "-"
    words = f"{mean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")
    return words + (f" ({aim:g})" if aim is not None else "")


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Every row that has been run."""
    lines = [
        "| accuracy % (aim) | epsilon 0.2 | 1 | 5 | seeds | kB sent up | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, stem, model, aims in ROWS:
        rows = [found.get(f"{stem}_eps{epsilon}", []) for epsilon in EPSILONS]
        if any(rows):
            cells = [cell(part, model, aim) for part, aim in zip(rows, aims)]
            seeds = "/".join(str(len(part)) for part in rows)
            sent = "/".join(f"{mean(r['bytes_up'] for r in part) / 1000:.0f}" if part else "-" for part in rows)
            took = mean(row["minutes"] for part in rows for row in part)
            lines.append(f"| {name} | {' | '.join(cells)} | {seeds} | {sent} | {took:.1f} |")
    return "\n".join(lines)


def head_line(stem: str, found: dict[str, list[dict[str, Any]]]) -> str:
    """A preset's first line: its table, row, aim and what came of it."""
    base, _, epsilon = stem.rpartition("_eps")
    known = [(model, aims[EPSILONS.index(epsilon)]) for _, name, model, aims in ROWS if name == base]
    aim = ", ".join(f"{value:g} ({model})" for model, value in known if value is not None) or "none"
    runs = found.get(stem, [])
    ours = "not run"
    if runs:
        ours = f"{mean(row['accuracy'] for row in runs):.2f} % ({len(runs)} seeds; the recommended model)"
    return f"# reproduce/prism, settings chosen by auto: {stem.replace('_', ', ')}. Aim: {aim}. Ours: {ours}."


def main() -> None:
    found = results()
    readme = HERE / "README.md"
    text = readme.read_text()
    inner = f"{BEGIN}\n{table(found)}\n{END}"
    readme.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: inner, text, flags=re.DOTALL))
    for file in sorted(PRESETS.glob("*.toml")):
        _, _, rest = file.read_text().partition("\n")
        file.write_text(f"{head_line(file.stem, found)}\n{rest}")


if __name__ == "__main__":
    main()
