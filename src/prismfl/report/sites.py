"""A site for its operator, as rows: what is declared and allowed, what was asked, what left, what waits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from prismfl.files.bounded import read_json, read_text
from prismfl.privacy.ledger.book import Ledger
from prismfl.report.ledgers import status_rows
from prismfl.site.approvals import Approvals, config_words
from prismfl.site.certificates import look_at_trust
from prismfl.site.config import SiteConfig, ledger_of, load_site
from prismfl.site.data import SiteData
from prismfl.site.egress import EgressLog
from prismfl.site.watching import last_answer
from prismfl.transport.flower import children

Facts = dict[str, Any]


def declared_facts(folder: Path, config: SiteConfig, data: SiteData) -> Facts:
    """What the site has declared of its data, and what it allows: methods, releases, cap and limits."""
    spec = data.spec
    return {
        "site": config.name,
        "data": config.data,
        "kind": spec.kind,
        "shape": list(spec.shape),
        "classes": list(spec.classes),
        "unit": config.unit,
        "relation": config.relation,
        "left out": data.left_out,
        "public": sorted(config.public),
        "ledger": str(ledger_of(folder, config)),
        "cap": config.cap,
        "delta": config.delta,
        "methods": config.methods,
        "releases": config.releases,
        "device": config.device,
        "threads": config.threads,
        **{key: value for key, value in config.model_dump().items() if key.startswith("max_")},
    }


def status_facts(folder: Path) -> Facts:
    """Whether the site runs, what it has spent of its cap, what left and what waits."""
    config = load_site(folder)
    rows, ledger = EgressLog(folder).rows(), ledger_of(folder, config)
    trust = look_at_trust(folder / "keys" / "ca.pem")
    return {
        "site": config.name,
        "running": children.pid_of(folder / "site.pid") is not None,
        "methods": config.methods,
        "releases": sum(row["what"] == "release" for row in rows),
        "words": [f"{row['word']} (round {row['round'] + 1})" for row in rows if row["what"] == "word"][-3:],
        "waiting": [held.id for held in Approvals(folder).all() if held.decision == "waiting"],
        "last answer": max(0.0, time.time() - last) if (last := last_answer(rows, config.answer_every)) else None,
        "certificate": [words for words in (*trust.faults, trust.soon) if words],
        "ledger": status_rows(ledger) if ledger.exists() else [],
    }


def fact_rows(facts: Facts) -> list[Facts]:
    """Facts as a table of two columns; a list is one line, the rows of a ledger are lines of their own."""
    rows: list[Facts] = []
    for key, value in facts.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows += [{"what": f"{key}, {inner}", "value": one} for row in value for inner, one in row.items()]
        elif key != "ledger" or value:
            rows.append({"what": key, "value": ", ".join(map(str, value)) if isinstance(value, list) else value})
    return rows


def outbox_rows(folder: Path) -> list[Facts]:
    """A row for each release that was put up for approval: the decision on it, and the files to look at."""
    return [
        {"id": held.id, "release": held.release, "decision": held.decision, "look at": ", ".join(held.files)}
        for held in Approvals(folder).all()
    ]


def preview(folder: Path, name: str) -> str:
    """What to look at before one decides on a release, as text."""
    held = Approvals(folder).find(name)
    text = read_text(folder / "outbox" / held.id / "preview.txt")
    said = [f"{word.decision} by {word.by}, {word.time}: {word.reason}" for word in held.words]
    return "\n".join([text, f"decision: {held.decision} ({held.needed} must approve)", *said])


def run_rows(folder: Path) -> list[Facts]:
    """Every run that a server has asked for here: what it is, in words, and whether it still holds budget."""
    place, held = ledger_of(folder, load_site(folder, thorough=False)), dict[str, str]()
    if place.exists():
        with Ledger.open(place, create=False) as ledger:
            for status in ledger.status():
                held |= dict.fromkeys(status.closed_runs, "closed") | dict.fromkeys(status.open_runs, "holds budget")
    rows = []
    for note in sorted((folder / "runs").glob("*/job.json")):
        told = read_json(note)
        state = held.get(told["run"], "reserved nothing")
        rows.append({"run": told["run"], "state": state, "what": "\n".join(config_words(told["description"]))})
    return rows


def _what(row: Facts) -> str:
    if row["what"] == "decision":
        return f"{row['decision']} by {row['by']}: {row['reason']}"
    if row["what"] == "word":
        return str(row["word"])
    return ", ".join(f"{name} ({item['kind']})" for name, item in row["items"].items())


def egress_rows(rows: list[Facts]) -> list[Facts]:
    """The rows of an egress log, short enough for a table."""
    return [
        {
            "time": row["time"][:19].replace("T", " "),
            "run": str(row.get("run") or row.get("release"))[:8],
            "round": row["round"] + 1 if "round" in row else "",
            "what": _what(row),
            "bytes": row.get("bytes", ""),
            "digest": row.get("digest", "")[:8],
            "cost": row.get("cost_words", "").partition(";")[0],
            "again": "resent" if row.get("resend") else "",
        }
        for row in rows
    ]
