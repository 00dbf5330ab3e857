"""Tables for the terminal. Each takes plain dicts, the same that `--format json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def epsilon_words(row: Mapping[str, Any]) -> str:
    """Epsilon for people: infinity and the words where there is no guarantee; never a blank."""
    if row["guarantee"] == "none":
        return "∞ (no DP guarantee)"
    if row["guarantee"] == "nothing leaves":
        return "0 (nothing leaves)"
    return f"{row['epsilon']:.3g} per {row['unit']}"


def size_words(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def simple_table(title: str, rows: Sequence[Mapping[str, Any]], *, caption: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(str(name), overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table


def result_table(result: Mapping[str, Any]) -> Table:
    accuracy = "-" if result["accuracy"] is None else f"{result['accuracy']:.2f} %"
    rows = {
        "method": result["method"],
        "data": f"{result['data']}, {result['split']}, {result['sites']} sites",
        "accuracy": accuracy,
        "epsilon": epsilon_words(result),
        "guarantee": f"{result['guarantee']}; delta {result['delta']:g}, unit {result['unit']}, {result['relation']}",
        "sent up / down": f"{size_words(result['bytes_up'])} / {size_words(result['bytes_down'])}",
        "seconds": f"{result['seconds']:.1f}",
        "run": result["run_dir"],
    }
    return _two_columns("Run", rows)


def plan_table(plan: Mapping[str, Any]) -> Table:
    rows = {
        "method": plan["method"],
        "epsilon, whole run": epsilon_words(plan),
        "epsilon by RDP": "∞" if plan["epsilon_rdp"] is None else f"{plan['epsilon_rdp']:.4g}",
        "epsilon, one round": "∞" if plan["epsilon_per_round"] is None else f"{plan['epsilon_per_round']:.4g}",
        "sigma": "-" if plan["sigma"] is None else f"{plan['sigma']:.4g}",
        "delta, unit, relation": f"{plan['delta']:g}, {plan['unit']}, {plan['relation']}",
        "declared records a site": str(plan["records"]),
        "rounds": str(plan["rounds"]),
        "releases": str(plan["releases"]),
        "sent up": size_words(plan["bytes_up"]),
        "cost": plan["cost"],
    }
    return _two_columns("Plan (no record was read)", rows)


def _two_columns(title: str, rows: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table
