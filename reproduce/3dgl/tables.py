"""The tables of README.md from results.json: paper against ours, mean over the split seeds.

python reproduce/3dgl/tables.py reproduce/3dgl/results.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from run import BEST

# (accuracy, F1, AUC): as printed in the paper.
TWO = {
    "titanic": ((74.04, 46.88, 80.81), (76.34, 68.04, 80.30)),
    "breast-cancer": ((97.67, 98.18, 99.83), (96.51, 97.25, 99.83)),
    "mushroom": ((94.96, 94.65, 97.99), (93.73, 93.28, 95.28)),
    "adult": ((82.05, 54.67, 85.53), (79.97, 60.32, 83.28)),
    "wine-quality": ((97.74, 95.24, 98.75), (98.31, 96.53, 98.64)),
}
THREE = {
    "titanic": (54.00, 55.61, 57.23, 342.06, 15.79),
    "breast-cancer": (52.69, 55.06, 53.88, 26.82, 6.13),
    "mushroom": (57.40, 55.98, 60.83, 1226.03, 20.15),
    "adult": (64.53, 65.55, 68.37, 3358.17, 14.98),
    "wine-quality": (57.69, 60.85, 64.61, 191.81, 7.81),
}
FOUR = {
    "titanic": ((77.28, 35.34, 76.42), (77.13, 62.50, 79.21)),
    "breast-cancer": ((93.20, 95.29, 98.51), (97.52, 98.06, 98.59)),
    "mushroom": ((93.86, 93.48, 96.62), (94.11, 93.87, 96.42)),
    "adult": ((81.03, 51.74, 83.80), (79.61, 52.65, 80.52)),
    "wine-quality": ((96.39, 92.25, 99.47), (98.68, 97.45, 99.48)),
}
FIVE = {
    "titanic": ((73.28, 39.88, 78.25), (74.81, 64.71, 79.01), (76.34, 67.37, 79.98)),
    "breast-cancer": ((93.84, 95.33, 99.65), (97.54, 97.98, 98.79), (96.51, 97.30, 99.13)),
    "mushroom": ((93.85, 93.40, 96.89), (94.20, 93.93, 96.50), (94.10, 93.72, 97.12)),
    "adult": ((81.18, 51.87, 84.52), (79.55, 52.27, 80.89), (80.99, 54.48, 82.39)),
    "wine-quality": ((95.67, 90.29, 98.64), (97.99, 95.88, 98.48), (98.12, 96.15, 98.51)),
}
Triple = tuple[float, ...]


# A column of ours: title, which generator ("vae" or "best"), which score.
Column = tuple[str, str, str]


def part_of(data: str, kind: str, place: int) -> str:
    """The name in results.json of the VAE's part, or of the best one's; place 0 is one generator, 1 a pool."""
    return ("one", "pool")[place] if kind == "vae" else BEST[data][place]


def ours(results: dict[str, Any], data: str, part: str, key: str, view: str) -> Triple:
    runs = [seed[part][view][key] for seed in results[data].values()]
    return tuple(float(np.mean([run[name] for run in runs])) for name in ("accuracy", "f1", "auc"))


def shown(values: Triple, sign: str = "") -> str:
    return " / ".join(f"{v:{sign}.1f}" for v in values)


def table(
    results: dict[str, Any], paper: dict[str, Any], place: int, columns: list[Column], view: str = "unit"
) -> list[str]:
    """One row a data set, accuracy / F1 / AUC; then the mean difference to the first column of either side."""
    labels = ["real", "synth", "synth (test-test)"][: len(next(iter(paper.values())))]
    lines = ["| data | " + " | ".join([f"paper {n}" for n in labels] + [title for title, _, _ in columns]) + " |"]
    lines.append("|" + " --- |" * (1 + len(labels) + len(columns)))
    gaps: list[list[Triple]] = [[] for _ in range(len(labels) + len(columns))]
    for data in [d for d in paper if d in results]:
        left = list(paper[data])
        right = [ours(results, data, part_of(data, kind, place), key, view) for _, kind, key in columns]
        lines.append(f"| {data} | " + " | ".join(shown(v) for v in left + right) + " |")
        for i, value in enumerate(left + right):
            base = left[0] if i < len(left) else right[0]
            gaps[i].append(tuple(v - b for v, b in zip(value, base)))
    cells = ["" if i in (0, len(labels)) else shown(tuple(np.mean(g, 0)), "+") for i, g in enumerate(gaps)]
    return [*lines, "| mean difference to real | " + " | ".join(cells) + " |"]


def adversary(results: dict[str, Any], kind: str) -> list[str]:
    lines = [
        "| data | paper acc / F1 / AUC / KLD / TLD | ours acc / F1 / AUC / KLD* / TLD* | KLD of histograms | "
        "marginals (TV) | correlations | coverage |",
        "|" + " --- |" * 7,
    ]
    for data in [d for d in THREE if d in results]:
        runs = [seed[part_of(data, kind, 0)] for seed in results[data].values()]

        def mean(group: str, name: str, runs: list[Any] = runs) -> float:
            return float(np.mean([run[group][name] for run in runs]))

        mine = tuple(mean("adversarial", n) for n in ("accuracy", "f1", "auc", "kld_sum", "tld_sum"))
        more = [mean("adversarial", "kld"), *(mean("fidelity", n) for n in ("marginals", "correlation", "coverage"))]
        lines.append(
            f"| {data} | {shown(THREE[data])} | {shown(mine)} | " + " | ".join(f"{v:.3f}" for v in more) + " |"
        )
    return lines


def columns_of(real: str, scenario: str, *, more: str | None = None) -> list[Column]:
    out = [("real", "vae", real)]
    for kind, word in (("vae", "VAE"), ("best", "best")):
        out += [(f"{word} {balance}", kind, f"{scenario}_{balance}") for balance in ("equal", "chosen")]
    if more:
        out.append((f"best {more.replace('_', '-')} chosen", "best", f"{more}_chosen"))
    return out


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    two, four = columns_of("real", "synth"), columns_of("real_fold", "fold_fold")
    five = columns_of("real_test", "fold_test", more="test_test")
    parts = [
        ("Table II: one generator", table(results, TWO, 0, two)),
        ("Table III: adversary and fidelity, VAE", adversary(results, "vae")),
        ("Table III: adversary and fidelity, best", adversary(results, "best")),
        ("Table IV: ten sites, Fold-Fold", table(results, FOUR, 1, four)),
        ("Table V: ten sites, Fold-Test and Test-Test", table(results, FIVE, 1, five)),
        ("The same with features in [-1, 1]: Table II", table(results, TWO, 0, two, "wide")),
        ("The same with features in [-1, 1]: Table V", table(results, FIVE, 1, five, "wide")),
    ]
    for title, lines in parts:
        print(f"## {title}\n\n" + "\n".join(lines) + "\n")
    total = sum(seed["cpu_seconds"] for data in results.values() for seed in data.values())
    print(
        f"CPU minutes in all: {total / 60:.1f}; seeds: " + ", ".join(f"{d} {'/'.join(s)}" for d, s in results.items())
    )


if __name__ == "__main__":
    main()
