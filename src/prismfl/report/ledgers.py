"""Ledgers as rows for people: status, verification, history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.balances import DatasetStatus
from prismfl.privacy.ledger import Ledger


def ledger_files(path: Path) -> list[Path]:
    """The ledger at `path`, or all ledgers below a folder."""
    found = [path] if path.is_file() else sorted(p for p in path.rglob("*.sqlite") if p.is_file())
    anchored = sorted(p.with_name(p.name.removesuffix(".anchor")) for p in path.rglob("*.sqlite.anchor"))
    files = sorted({*found, *anchored})
    if not files:
        raise UserError(f"No ledger at '{path}'.")
    return files


def status_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for file in ledger_files(path):
        with Ledger.open(file, create=False) as ledger:
            rows += [_status_row(file, status) for status in ledger.status()]
    return rows


def _status_row(file: Path, status: DatasetStatus) -> dict[str, Any]:
    delta = status.cap.delta if status.cap else 1e-5
    spent = [account.epsilon(cost, delta) for cost in status.spent]
    return {
        "ledger": file.stem,
        "data set": ", ".join(status.names),
        "releases": status.releases,
        "epsilon spent": ", ".join(f"{e:.4g}" if e < float("inf") else "∞ (no DP guarantee)" for e in spent) or "0",
        "delta": f"{delta:g}",
        "unit": ", ".join(cost.unit for cost in status.spent) or (status.cap.unit if status.cap else "-"),
        "cap": "none" if status.cap is None else f"{status.cap.epsilon:g}",
        "budget held": "-" if status.used is None else f"{100 * min(1.0, status.used):.1f} %",
    }


def verify_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for file in ledger_files(path):
        with Ledger.open(file, create=False) as ledger:
            rows.append({"ledger": file.stem, "entries": ledger.verify(), "chain": "whole"})
    return rows


def history_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for file in ledger_files(path):
        with Ledger.open(file, create=False) as ledger:
            costs = {charge.seq: charge.cost.describe() for charge in ledger.charges()}
            rows += [
                {
                    "ledger": file.stem,
                    "seq": entry.seq,
                    "time": entry.time,
                    "entry": entry.kind,
                    "what": str(entry.body.get("release") or entry.body.get("run") or entry.body.get("name") or ""),
                    "cost": costs.get(entry.seq, ""),
                }
                for entry in ledger.history()
            ]
    return rows
