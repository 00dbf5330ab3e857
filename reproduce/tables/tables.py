"""The tables of README.md from results.json: python reproduce/tables/tables.py reproduce/tables/results.json"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

NAMES = ("adult", "mushroom", "titanic", "breast-cancer", "wine-quality", "drawn")
ORDER = ("real", "dp-marginals", "dp-marginals-two", "dp-marginals-secure", "dp-copula", "aim", "mst")
MODELS = ("logistic regression", "boosted trees")
AT_A_GLANCE = (
    ("real", "real"),
    ("1 site", "dp-marginals", "1.9", "1", "iid"),
    ("10 sites", "dp-marginals", "1.9", "10", "iid"),
    ("10, secure sum", "dp-marginals-secure", "1.9", "10", "iid"),
    ("10, label-skewed", "dp-marginals", "1.9", "10", "skewed"),
    ("50 sites", "dp-marginals", "1.9", "50", "iid"),
    ("copula, 1 site", "dp-copula", "1.9", "1", "iid"),
    ("copula, 10 sites", "dp-copula", "1.9", "10", "iid"),
    ("AIM", "aim", "1.9", "1", "iid"),
    ("MST", "mst", "1.9", "1", "iid"),
)
SHOWN = ("auc", "accuracy", "balanced_accuracy", "f1", "average_precision")


def grouped(rows: dict[str, Any]) -> dict[tuple[str, ...], list[Any]]:
    """Rows of all seeds together: (data, method, epsilon, sites, split)."""
    found = defaultdict(list)
    for name, row in rows.items():
        found[tuple(name.split("/")[:-1])].append(row)
    return found


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def summary(found: dict[tuple[str, ...], list[Any]]) -> list[str]:
    """AUC of the line / of trees at epsilon 1.9: a row a data set, the spread of the seeds in brackets."""
    heads = ["data", *(name for name, *_ in AT_A_GLANCE)]
    out = [line(heads), line(["---"] * len(heads))]
    for data in NAMES:
        cells = [data]
        for _, method, *place in AT_A_GLANCE:
            rows = found.get((data, method, *place), [])
            values = [[row["useful"][model]["auc"] for row in rows] for model in MODELS]
            cells.append(" / ".join(f"{mean(v):.1f}{f' ({stdev(v):.1f})' if len(v) > 1 else ''}" for v in values if v))
        out.append(line(cells))
    return out


def useful(found: dict[tuple[str, ...], list[Any]]) -> list[str]:
    heads = [
        "data",
        "method",
        "epsilon",
        "sites",
        "split",
        "seeds",
        *(f"{m}: AUC / acc / bal / F1 / AP" for m in MODELS),
    ]
    out = [line(heads), line(["---"] * len(heads))]
    for key in sorted(found, key=lambda k: (NAMES.index(k[0]), ORDER.index(k[1]), k[2:])):
        rows, place = found[key], [*key[2:], "", "", ""][:3]
        cells = [key[0], key[1], *place, str(len(rows))]
        for model in MODELS:
            values = [[row["useful"][model][name] for row in rows] for name in SHOWN]
            cells.append(" / ".join(f"{mean(v):.1f}" if None not in v else "-" for v in values))
        out.append(line(cells))
    return out


def faithful(found: dict[tuple[str, ...], list[Any]]) -> list[str]:
    names = ("tv_1", "tv_2", "tv_3", "correlations", "rare_categories")
    heads = ["data", "method", "epsilon", "sites", "split", *names, "cpu seconds"]
    out = [line(heads), line(["---"] * len(heads))]
    for key in sorted(found, key=lambda k: (NAMES.index(k[0]), ORDER.index(k[1]), k[2:])):
        rows, place = found[key], [*key[2:], "", "", ""][:3]
        values = [[row["faithful"][name] for row in rows] for name in names]
        told = [f"{mean(v):.3f}" if None not in v else "-" for v in values]
        spent = [row["cpu_seconds"] for row in rows if "cpu_seconds" in row]
        out.append(line([key[0], key[1], *place, *told, f"{mean(spent):.0f}" if spent else "-"]))
    return out


if __name__ == "__main__":
    known = grouped(json.loads(Path(sys.argv[1]).read_text()))
    print("\n".join([*summary(known), "", *useful(known), "", *faithful(known)]))
