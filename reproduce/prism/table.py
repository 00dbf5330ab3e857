"""Writes the table of README.md from results*.json: python reproduce/prism/table.py."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
TARGETS = {
    ("mnist", "fedlap", 5): {0.2: "94", 1: "96.5", 5: "97"},
    ("fashion-mnist", "fedlap", 5): {0.2: "72", 1: "80", 5: "82"},
    ("cifar10", "fedlap", 5): {0.2: "-", 1: "42", 5: "-"},
    ("mnist", "iid", 5): {0.2: "-", 1: "94", 5: "-"},
    ("mnist", "iid", 50): {0.2: "-", 1: "90", 5: "-"},
}


START, END = "<!-- table: written by table.py -->", "<!-- end of table -->"


def main() -> None:
    files = [
        path
        for path in sorted(HERE.glob("results*.json"))
        if path.stem.split("_")[1] not in ("ablation", "auto", "held")
    ]
    rows = [row for path in files for row in json.loads(path.read_text())]
    groups = defaultdict(list)
    for row in rows:
        groups[row["data"], row["split"], row["sites"], row["method"], round(row["epsilon"], 1)].append(row)
    lines = [
        "| data, split, sites | method | epsilon | aim | accuracy % | seeds | bytes up + down | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (data, split, sites, method, epsilon), found in sorted(groups.items()):
        scores = [row["accuracy"] for row in found]
        spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
        aim = TARGETS.get((data, split, sites), {}).get(epsilon, "-") if method == "prism" else ""
        size = mean(row["bytes_up"] + row["bytes_down"] for row in found) / 1e6
        minutes = mean(row["minutes"] for row in found)
        lines.append(
            f"| {data}, {split}, {sites} | {method} | {epsilon:g} | {aim} | {mean(scores):.2f}{spread} | {len(scores)} "
            f"| {size:.2f} MB | {minutes:.1f} |"
        )
    readme = HERE / "README.md"
    before, rest = readme.read_text().split(START)
    _, after = rest.split(END)
    readme.write_text("\n".join([before + START, *lines, END]) + after)


if __name__ == "__main__":
    main()
