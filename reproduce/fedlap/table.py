"""The tables of results.json, written into README.md between its two marks: python reproduce/fedlap/table.py."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).parent
BEGIN, END = "<!-- table: written by table.py -->", "<!-- end of table -->"
PAPER = {
    (1, "fedlap-dp"): {"mnist": 60.72, "fashion-mnist": 59.85, "cifar10": 21.42},
    (1, "dp-fedprox"): {"mnist": 54.58, "fashion-mnist": 54.57, "cifar10": 19.40},
    (1, "dp-fedavg"): {"mnist": 45.25, "fashion-mnist": 50.11, "cifar10": 17.11},
    (15, "fedlap-dp"): {"mnist": 87.77, "fashion-mnist": 73.00, "cifar10": 36.09},
    (15, "dp-fedprox"): {"mnist": 88.75, "fashion-mnist": 71.67, "cifar10": 35.04},
    (15, "dp-fedavg"): {"mnist": 86.99, "fashion-mnist": 72.78, "cifar10": 31.15},
}
LABEL = {1: "2.79", 15: "10.18"}


def lines(rows: list[dict[str, Any]]) -> list[str]:
    out = [
        "| data | method | rounds | paper's epsilon | ours, RDP / tight | paper % | ours % | seeds | CPU min |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (rounds, method), published in PAPER.items():
        for data, paper in published.items():
            words = {data, method, f"rounds{rounds}"}
            mine = [row for row in rows if words <= set(row["name"].split())]
            if not mine:
                continue
            scores = ", ".join(f"{row['accuracy']:.1f}" for row in mine)
            ours = f"{mean(row['accuracy'] for row in mine):.1f} ({scores})"
            spent = f"{mine[0]['epsilon_rdp']:.2f} / {mine[0]['epsilon_tight']:.2f}"
            minutes = f"{mean(row['cpu_minutes'] for row in mine):.0f}"
            cells = [data, method, str(rounds), LABEL[rounds], spent, f"{paper:.1f}", ours, str(len(mine)), minutes]
            out.append(f"| {' | '.join(cells)} |")
    return out


def by_round(rows: list[dict[str, Any]]) -> list[str]:
    """Rows of more rounds than one, which the paper prints for other numbers of rounds: accuracy after each."""
    longer = [row for row in rows if len(row["accuracy_by_round"]) > 1]
    if not longer:
        return []
    most = max(len(row["accuracy_by_round"]) for row in longer)
    out = [
        "",
        f"| accuracy % (epsilon by RDP) after round | {' | '.join(str(i + 1) for i in range(most))} | CPU min |",
        "|---" * (most + 2) + "|",
    ]
    for row in longer:
        cells = [f"{a:.1f} ({e:.2f})" for a, e in zip(row["accuracy_by_round"], row["epsilon_rdp_by_round"])]
        name = " ".join(word for word in row["name"].split() if not word.startswith("rounds"))
        minutes = f"{row['cpu_minutes']:.0f}"
        out.append(f"| {' | '.join([name, *cells, *[''] * (most - len(cells)), minutes])} |")
    return out


def main() -> None:
    readme, results = HERE / "README.md", HERE / "results.json"
    rows = json.loads(results.read_text()) if results.exists() else []
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(before + BEGIN + "\n" + "\n".join([*lines(rows), *by_round(rows)]) + "\n" + END + after)


if __name__ == "__main__":
    main()
