"""Everything a report says about a run, as plain values: the page's JSON twin. Never reads a record."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismfl import __version__
from prismfl.boundary import Release
from prismfl.errors import PrismError, UserError
from prismfl.methods import METHODS
from prismfl.metrics.membership import limits
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import Ledger
from prismfl.report.ledgers import ledger_files, status_rows, verify_rows
from prismfl.transcript import Message, RunDirectory

SCHEMA_VERSION = 1
Facts = dict[str, Any]
MOST_PICTURE_BYTES = 1_500_000
FIELDS = ("method", "data", "split", "sites", "seed", "model", "unit", "relation", "delta")


def collect(path: Path) -> Facts:
    """The facts of one run. What a run that was cut off does not have is listed under `missing`, never guessed."""
    run = RunDirectory.open(path)
    missing: list[str] = []
    config = _optional(run, "config.json", missing)
    result = _optional(run, "result.json", missing)
    status = run.status
    releases, ledger = _ledger(run, config, missing)
    cost = _cost(run, releases, result, config)
    facts: Facts = {
        "schema_version": SCHEMA_VERSION,
        "prismfl": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": {"status": status, "id": config.get("run", "?"), "created": config.get("created"), "path": path.name},
        "setting": {k: result.get(k, config.get(k)) for k in FIELDS},
        "guarantee": _guarantee(cost, config, complete=status == "finished"),
        "releases": releases,
        "ledger": ledger,
        "utility": {
            "accuracy": result.get("accuracy"),
            "accuracy_min": result.get("accuracy_min"),
            "rounds": run.metrics(),
            "classes": None,
        },
        "traffic": _traffic(run.messages()),
        "pictures": _pictures(path, missing),
        "partition": None,
        "attacks": list(_records(path / "attacks")),
        "audits": list(_records(path / "audits")),
        "noise": _noise(run),
        "config": config,
        "environment": _optional(run, "environment.json", missing),
        "digest": result.get("digest"),
        "seconds": result.get("seconds"),
        "missing": missing,
        "edition": "for sharing",
    }
    if not facts["attacks"]:
        missing.append(f"No attack was run: prismfl attack {path}.")
    if not facts["audits"]:
        missing.append(f"No audit was run: prismfl audit {path}.")
    if status != "finished":
        missing.append(f"The run is not finished ({status}): prismfl resume {path}. Figures are those up to the cut.")
    return facts


def _optional(run: RunDirectory, name: str, missing: list[str]) -> Facts:
    try:
        return run.read_json(name)
    except UserError as error:
        missing.append(str(error))
        return {}


def _ledger(run: RunDirectory, config: Mapping[str, Any], missing: list[str]) -> tuple[list[Facts], Facts]:
    """Every charge of this run in every ledger, and the state of the ledgers."""
    folder = Path(config["ledger"]) if config.get("ledger") else run.path / "ledger"
    sizes = {(m.site, m.round): m.bytes for m in run.messages() if m.direction == "up"}
    releases: list[Facts] = []
    try:
        for file in ledger_files(folder):
            with Ledger.open(file, create=False) as ledger:
                for charge in ledger.charges(run=str(config.get("run"))):
                    _, site, number = charge.release.rsplit("/", 2)
                    releases.append(
                        {
                            "site": site,
                            "round": int(number) + 1,
                            "bytes": sizes.get((site, int(number)), charge.size),
                            "cost": charge.cost.to_json(),
                            "words": charge.cost.describe(),
                            "digest": charge.digest,
                            "confirmed": charge.confirmed,
                            "time": charge.time,
                        }
                    )
        return releases, {"status": status_rows(folder), "chain": verify_rows(folder)}
    except PrismError as error:
        missing.append(f"The ledgers cannot be read: {error}")
        return releases, {"status": [], "chain": []}


def _cost(
    run: RunDirectory, releases: list[Facts], result: Mapping[str, Any], config: Mapping[str, Any]
) -> Cost | None:
    """What the worst-off site (or the hub) has spent in this run."""
    totals: dict[str, Cost] = {}
    for release in releases:
        cost = Cost.from_json(release["cost"])
        known = totals.get(release["site"])
        totals[release["site"]] = cost if known is None else known + cost
    if not totals and (run.path / "ledger.json").is_file():
        totals = {k: Cost.from_json(v) for k, v in run.read_json("ledger.json").items()}
    if "hub" in totals:
        return totals["hub"]
    delta = float(config.get("delta", 1e-5))
    worst = {cost: account.epsilon(cost, delta) for cost in set(totals.values())}
    return max(worst, key=lambda c: worst[c]) if worst else None


def _guarantee(cost: Cost | None, config: Mapping[str, Any], *, complete: bool) -> Facts:
    delta = float(config.get("delta", 1e-5))
    method = METHODS.get(str(config.get("method")))
    facts: Facts = {
        "known": cost is not None,
        "final": complete,
        "level": None if method is None else method.guarantee,
        "leaves": {} if method is None else {name: kind.kind for name, kind in method.leaves.items()},
        "delta": delta,
        "target": config.get("epsilon"),
    }
    if cost is None:
        return facts
    epsilon = account.epsilon(cost, delta)
    rdp = account.epsilon_rdp(cost, delta)
    return facts | {
        "private": cost.private,
        "nothing_leaves": cost.is_zero,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "epsilon_rdp": rdp if math.isfinite(rdp) else None,
        "unit": cost.unit,
        "relation": cost.relation,
        "cost": cost.to_json(),
        "words": cost.describe(),
        "allows": limits(cost, delta),
    }


def _traffic(messages: list[Message]) -> Facts:
    rounds: dict[int, dict[str, int]] = {}
    sites: dict[str, dict[str, int]] = {}
    for m in messages:
        for row in (
            rounds.setdefault(m.round + 1, {"up": 0, "down": 0}),
            sites.setdefault(m.site, {"up": 0, "down": 0}),
        ):
            row[m.direction] += m.bytes
    return {
        "up": sum(r["up"] for r in rounds.values()),
        "down": sum(r["down"] for r in rounds.values()),
        "rounds": [{"round": k, **v} for k, v in sorted(rounds.items())],
        "sites": [{"site": k, **v} for k, v in sorted(sites.items(), key=lambda item: natural(item[0]))],
    }


def natural(name: str) -> tuple[str, int]:
    """site-2 before site-10."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)


def _pictures(path: Path, missing: list[str]) -> list[Facts]:
    """Synthetic images that left the sites, as data for the page. They are releases: showing them costs nothing."""
    found = []
    for file, words in ((path / "gen" / "sample.png", "Synthetic images, a row for each class"),):
        if file.is_file() and file.stat().st_size <= MOST_PICTURE_BYTES:
            found.append({"title": words, "png": base64.b64encode(file.read_bytes()).decode(), "private": False})
    if (path / "gen" / "gen.npz").is_file() and not found:
        missing.append("The synthetic set is not of images (or its picture is missing), so none is shown.")
    return found


def _records(folder: Path) -> Iterator[Facts]:
    """The JSON files that attacks and audits leave behind, oldest name first."""
    for file in sorted(folder.glob("*.json")):
        try:
            value = json.loads(file.read_text())
        except (ValueError, UnicodeDecodeError):
            yield {"name": file.stem, "unreadable": True}
            continue
        rows = value if isinstance(value, list) else [value]
        yield from ({"name": file.stem, **row} for row in rows if isinstance(row, dict))


def _noise(run: RunDirectory) -> str | None:
    """Where the noise came from, as the first kept release says."""
    for message in run.messages():
        if message.direction == "up" and message.file is not None and (run.path / message.file).is_file():
            try:
                return Release.decode((run.path / message.file).read_bytes()).noise
            except PrismError:
                return None
    return None
