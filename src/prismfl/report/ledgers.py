"""Ledgers as rows for people: status, verification, history."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.ledger.balances import Charge, DatasetStatus
from prismfl.privacy.ledger.book import Ledger
from prismfl.report.words import NO_PROTECTION
from prismfl.runs.directory import RunDirectory
from prismfl.sources import SIMULATION


def ledger_files(path: Path) -> list[Path]:
    """The ledger at `path`, or all ledgers below a folder; a run on own data names the ledger it was charged to."""
    if (path / "config.json").is_file() and (told := RunDirectory(path).read_json("config.json").get("ledger")):
        path = Path(told)
    inside = path.resolve()
    below = (p for p in path.rglob("*.sqlite") if p.is_file() and p.resolve().is_relative_to(inside))
    found = [path] if path.is_file() else sorted(below)
    anchored = sorted(p.with_name(p.name.removesuffix(".anchor")) for p in path.rglob("*.sqlite.anchor"))
    files = sorted({*found, *anchored})
    if not files:
        raise UserError(f"No ledger at '{path}'.")
    return files


def status_rows(path: Path, *, run: str | None = None, simulation: bool = False) -> list[dict[str, Any]]:
    """A row a data set; with `run`, of the data sets which that run has a plan or a release on."""
    rows: list[dict[str, Any]] = []
    for file in ledger_files(path):
        with Ledger.open(file, create=False) as ledger:
            for status in ledger.status():
                if _concerns(status, run):
                    row = _status_row(file, status)
                    marked = f"{row['epsilon spent']} ({NO_PROTECTION})"
                    rows.append({**row, "epsilon spent": marked} if simulation or status.seeded else row)
    return rows


def _concerns(status: DatasetStatus, run: str | None) -> bool:
    return run is None or run in (*status.open_runs, *status.closed_runs)


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


def verify_rows(path: Path, *, run: str | None = None) -> list[dict[str, Any]]:
    """Verify each ledger; a row for every one, or with `run` for those that know the run."""
    rows = []
    for file in ledger_files(path):
        with Ledger.open(file, create=False) as ledger:
            entries = ledger.verify()
            if run is None or any(_concerns(status, run) for status in ledger.status()):
                rows.append({"ledger": file.stem, "entries": entries, "chain": "whole"})
    return rows


def _cost_words(charge: Charge) -> str:
    return charge.cost.describe() + (f" ({NO_PROTECTION})" if charge.noise == SIMULATION else "")


def history_rows(path: Path) -> list[dict[str, Any]]:
    """A row for every entry of every ledger, charges with their cost in words."""
    rows = []
    for file in ledger_files(path):
        with Ledger.open(file, create=False) as ledger:
            costs = {charge.seq: _cost_words(charge) for charge in ledger.charges()}
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


def overview(file: Path, *, begun: bool) -> list[dict[str, Any]]:
    """The facts of each data set on a ledger. One that is not known to have `begun` may not be there yet."""
    # A lost ledger whose anchor is there has begun: opening it says what is wrong.
    if not (begun or file.exists() or file.with_name(file.name + ".anchor").exists()):
        return []
    with Ledger.open(file, create=False) as ledger:
        return [dataset_facts(status) for status in ledger.status()]


def dataset_facts(status: DatasetStatus) -> dict[str, Any]:
    """One data set in numbers; the epsilon is the total of all that was ever released, None without a guarantee."""
    delta = status.cap.delta if status.cap else 1e-5
    spent = [account.epsilon(cost, delta) for cost in status.spent]
    terms = status.spent or ((status.cap,) if status.cap else ())
    return {
        "id": status.dataset,
        "names": list(status.names),
        "records": status.records,
        "unit": ", ".join(f"{one.unit} ({one.relation})" for one in terms) or "record",
        "cap": status.cap.epsilon if status.cap else None,
        "epsilon spent": [epsilon if math.isfinite(epsilon) else None for epsilon in spent] or [0.0],
        "delta": delta,
        "budget held": None if status.used is None else min(1.0, status.used),
        "runs": len(status.open_runs) + len(status.closed_runs),
        "open runs": list(status.open_runs),
        "releases": status.releases,
        "seeded": status.seeded,
    }


def dataset_row(facts: dict[str, Any]) -> dict[str, Any]:
    """The same for a table."""
    spent = ["∞ (no DP guarantee)" if epsilon is None else f"{epsilon:.4g}" for epsilon in facts["epsilon spent"]]
    return {
        "data set": f"{facts['id']}: {', '.join(facts['names'])}",
        "known records and units": facts["records"],
        "epsilon spent": ", ".join(spent) + (f" ({NO_PROTECTION})" if facts["seeded"] else ""),
        "cap": "none" if facts["cap"] is None else f"{facts['cap']:g}",
        "delta": f"{facts['delta']:g}",
        "unit": facts["unit"],
        "runs": facts["runs"],
        "releases": facts["releases"],
    }
