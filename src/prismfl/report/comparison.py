"""One table over several runs: the same method and setting over seeds becomes one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.report.tables import epsilon_words, size_words
from prismfl.transcript import RunDirectory

SAME = ("method", "data", "split", "sites", "model", "guarantee", "delta", "unit", "relation", "rounds")


def compare_runs(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """A row a method and setting, best accuracy first."""
    results = []
    for path in paths:
        run = RunDirectory.open(path)
        if run.status != "finished":
            raise UserError(f"The run in '{path}' is not finished; go on with: prismfl resume {path}.")
        results.append(run.read_json("result.json"))
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for result in results:
        budget = None if result["epsilon"] is None else round(result["epsilon"], 2)
        groups.setdefault((*(result[k] for k in SAME), budget), []).append(result)
    rows = [_row(group) for group in groups.values()]
    return sorted(rows, key=lambda row: -(row["accuracy"] or 0.0))


def _row(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = [r["accuracy"] for r in group if r["accuracy"] is not None]
    first = group[0]
    return {
        **{k: first[k] for k in SAME},
        "leaves": ", ".join(METHODS[first["method"]].leaves) or "nothing" if first["method"] in METHODS else "?",
        "epsilon": None if first["epsilon"] is None else max(r["epsilon"] for r in group),
        "accuracy": round(mean(scores), 2) if scores else None,
        "accuracy_std": round(stdev(scores), 2) if len(scores) > 1 else None,
        "seeds": len(group),
        "bytes": round(mean(r["bytes_up"] + r["bytes_down"] for r in group)),
        "seconds": round(mean(r["seconds"] for r in group), 1),
    }


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    settings = {f"{r['data']}, {r['split']}, delta {r['delta']:g}, {r['relation']}" for r in rows}
    table = Table(title="; ".join(sorted(settings)), title_justify="left")
    for name in ("method", "what leaves", "epsilon", "accuracy", "bytes", "seconds"):
        table.add_column(name, justify="right" if name in ("accuracy", "bytes", "seconds") else "left")
    for r in rows:
        score = "-" if r["accuracy"] is None else f"{r['accuracy']:.1f} %"
        if r["accuracy_std"] is not None:
            score += f" ± {r['accuracy_std']:.1f} ({r['seeds']} seeds)"
        table.add_row(r["method"], r["leaves"], epsilon_words(r), score, size_words(r["bytes"]), f"{r['seconds']:.1f}")
    return table
