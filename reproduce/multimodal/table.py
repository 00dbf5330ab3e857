"""Writes the tables of texts and patients into README.md, from results.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

HERE = Path(__file__).parent
SETS = ("xray-reports", "medical-abstracts", "pneumonia-reports", "drawn-patients")
EPSILONS = ("0.2", "1", "5")
PARTS = {"image": "image", "text": "text", "words": "words", "row": "table", "all": "together"}
Row = dict[str, Any]


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    if not values:
        return ""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def table(rows: dict[str, list[Row]]) -> str:
    """Accuracies, bytes and seconds."""
    lines = ["| data | ε | seeds | head | image | text | words | row | all | site, kB | time, s |"]
    lines += ["|" + "---|" * 11]
    for name, found in rows.items():
        data, epsilon = name.split()
        several = "image" in found[0]["parts"]
        cells = [spread([one["models"]["head"] for one in found])]
        for what, key in PARTS.items():
            there = [one["parts"][key]["accuracy"] for one in found if key in one["parts"]]
            cells.append(spread(there) if several or what in ("text", "words") else "")
        cells += [spread([one[key] for one in found]) for key in ("kilobytes_a_site", "cpu_seconds")]
        lines.append(f"| {data} | {epsilon} | {len(found)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fits(rows: dict[str, list[Row]]) -> str:
    """How often the fitting report is found among ten."""
    lines = ["| data | ε | seeds | synthetic pairs | mixed pairs |", "|---|---|---|---|---|"]
    for name, found in rows.items():
        told = [one["parts"]["retrieval"] for one in found if "retrieval" in one["parts"]]
        if told:
            cells = [spread([one[key] for one in told]) for key in ("synthetic", "shuffled")]
            lines.append(f"| {' | '.join(name.split())} | {len(told)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def attacks(rows: dict[str, list[Row]]) -> str:
    """Members told from others by the nearest synthetic text, and private phrases that came out."""
    lines = ["| data | ε | AUC, each seed | AUC of copies | private phrases |", "|---|---|---|---|---|"]
    for name, found in rows.items():
        auc = ", ".join(f"{one['neighbour_auc']:.3f}" for one in found)
        phrases = ", ".join(str(one["private_phrases"]) for one in found)
        copies = found[0]["neighbour_auc_of_copies"]
        lines.append(f"| {' | '.join(name.split())} | {auc} | {copies:.3f} | {phrases} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[dict[str, list[Row]]], str]] = {"table": table, "fits": fits, "attacks": attacks}


def main() -> None:
    known = json.loads((HERE / "results.json").read_text())
    rows = {
        f"{data} {epsilon}": [row for name, row in sorted(known.items()) if name.startswith(f"{data} {epsilon} ")]
        for data in SETS
        for epsilon in EPSILONS
    }
    rows = {name: found for name, found in rows.items() if found}
    text = (HERE / "README.md").read_text()
    for name, made in TABLES.items():
        inner = f"<!-- {name}: written by table.py -->\n{made(rows)}\n<!-- end of {name} -->"
        text = re.sub(f"<!-- {name}: .*?<!-- end of {name} -->", lambda _, new=inner: new, text, flags=re.DOTALL)
    (HERE / "README.md").write_text(text)


if __name__ == "__main__":
    main()
