"""Everything a report says about a run, as plain values: the page's JSON twin. Never reads a record."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from prismfl.adversary.scores.membership import LOW_RATES, bound, limits
from prismfl.errors import PrismError, UserError
from prismfl.files import inside as run_files
from prismfl.methods import METHODS
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.guessing import most_right
from prismfl.privacy.ledger.book import Ledger
from prismfl.report.delivered import PATIENTS, delivered
from prismfl.report.editions import MISSING, ON_SITE, OnSiteFacts, is_own
from prismfl.report.ledgers import ledger_files, status_rows, verify_rows
from prismfl.report.released import noise_to_signal
from prismfl.report.tables import best_scores
from prismfl.runs.directory import RunDirectory
from prismfl.runs.pulse import seconds_so_far, standing
from prismfl.runs.result import noise_of
from prismfl.sources import SIMULATION
from prismfl.version import __version__

SCHEMA_VERSION = 1
Facts = dict[str, Any]
MOST_PICTURE_BYTES = 1_500_000
FIELDS = ("method", "data", "split", "sites", "seed", "model", "unit", "relation", "delta", "encoder")


def collect(path: Path) -> OnSiteFacts:
    """All facts of one run, for the site itself. What a run that was cut off does not have is listed under `missing`,
    never guessed. What may be handed on is made from these by `editions.share`."""
    run = RunDirectory.open(path)
    missing: list[Facts] = []
    config = _optional(run, "config", missing)
    result = _optional(run, "result", missing)
    status = standing(run).status
    noise = noise_of(run, config, result)
    releases, ledger = _ledger(run, config, missing, simulation=noise == SIMULATION)
    cost = _cost(run, releases, result, config)
    guarantee = _guarantee(cost, config, complete=status == "finished") | {"simulation": noise == SIMULATION}
    facts = OnSiteFacts(
        schema_version=SCHEMA_VERSION,
        prismfl=__version__,
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        run={"status": status, "id": config.get("run", "?"), "created": config.get("created"), "path": path.name},
        setting={**{k: result.get(k, config.get(k)) for k in FIELDS}, "pretrained_on": result.get("pretrained_on")},
        guarantee=_with_total(guarantee, result),
        releases=releases,
        ledger=ledger,
        utility={
            "accuracy": result.get("accuracy"),
            "accuracy_min": result.get("accuracy_min"),
            "scores": dict(best_scores(result)),
            "tables": dict(result.get("tables") or {}),
            "parts": dict(result.get("parts") or {}),
            "rounds": run.metrics(),
            "classes": None,
        },
        models=_models(result),
        noise_to_signal=noise_to_signal(run, result.get("sigma"))
        if _noisy_on_site(guarantee) and not config.get("secure")
        else None,
        traffic=_traffic(run),
        pictures=_pictures(path, missing),
        delivered=delivered(run, private=is_own(config, result) and not _protected(guarantee)),
        partition=None,
        attacks=list(_records(path, "attacks")),
        audits=list(_records(path, "audits")),
        noise=noise,
        own_data=is_own(config, result),
        config=config,
        environment=_optional(run, "environment", missing),
        digest=result.get("digest"),
        seconds=result.get("seconds", seconds_so_far(run) or None),
        missing=missing,
        edition=ON_SITE,
        withheld=[],
    )
    if config.get("start") and "epsilon_total" not in result:
        missing.append(lacking("start"))
    if config.get("transcript") == "none":
        missing.append(lacking("transcript"))
    missing += [lacking(what) for what in ("attacks", "audits") if not facts[what]]
    if status != "finished":
        missing.append(lacking("unfinished"))
    return facts


def _models(result: Mapping[str, Any]) -> list[Facts]:
    """Which model of the run scored what."""
    found = result.get("models")
    rows = found.items() if isinstance(found, dict) else ()
    best = result.get("recommended")
    return [
        {"name": name, "accuracy": scores.get("accuracy"), "taken": name == best}
        for name, scores in rows
        if isinstance(scores, dict)
    ]


def _protected(guarantee: Facts) -> bool:
    """Whether the final model may be shown to anybody: its noise is there and nobody knows its seed."""
    return bool(guarantee.get("private")) and not guarantee["simulation"]


def _noisy_on_site(guarantee: Facts) -> bool:
    """Whether what a site sent was noisy already. Client-level runs add noise at the hub: their messages are exact, and
    a figure from them was never charged."""
    return bool(guarantee.get("private")) and guarantee.get("level") == "site" and guarantee.get("unit") != "client"


def lacking(what: str, error: Exception | None = None) -> Facts:
    """A line under `missing`; what the error says stays on the site."""
    return {"what": what, "words": MISSING[what] if error is None else f"{MISSING[what]} {error}"}


def _optional(run: RunDirectory, what: str, missing: list[Facts]) -> Facts:
    try:
        return run.read_json(f"{what}.json")
    except UserError as error:
        missing.append(lacking(what, error))
        return {}


def _ledger(
    run: RunDirectory, config: Mapping[str, Any], missing: list[Facts], *, simulation: bool
) -> tuple[list[Facts], Facts]:
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
        name = str(config.get("run"))
        rows = status_rows(folder, run=name, simulation=simulation)
        return releases, {"status": rows, "chain": verify_rows(folder, run=name)}
    except PrismError as error:
        missing.append(lacking("ledger", error))
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


def _with_total(guarantee: Facts, result: Mapping[str, Any]) -> Facts:
    """With what the shown model depends on beside this run: earlier runs that it starts from. None is infinity."""
    if not guarantee["known"]:
        return guarantee
    own = guarantee["epsilon"]
    total = result.get("epsilon_total", own)
    if own is None or total is None or total <= own:
        return guarantee | {"epsilon_total": None if own is None or total is None else own}
    return guarantee | {"epsilon_total": total, "allows": allowed(total, guarantee["delta"])}


def allowed(epsilon: float, delta: float) -> Facts:
    """`limits` where only the total is known, not the mechanisms that it is the cost of."""
    rates = np.linspace(0, 1, 2001)
    best, low = bound(epsilon, delta, rates), bound(epsilon, delta, np.asarray(LOW_RATES))
    return {
        "epsilon": epsilon,
        "delta": delta,
        "auc": float((np.diff(rates) * best[1:]).sum()),
        "right_guess": most_right(epsilon, delta),
        **{f"tpr_at_{rate:g}": float(value) for rate, value in zip(LOW_RATES, low)},
    }


def _traffic(run: RunDirectory) -> Facts:
    """The bytes that crossed, by round and by site; of a run without a transcript, by round."""
    rounds: dict[int, dict[str, int]] = {}
    sites: dict[str, dict[str, int]] = {}
    messages = run.messages()
    for row in () if messages else run.metrics():
        rounds[int(row["round"])] = {"up": int(row.get("bytes_up", 0)), "down": int(row.get("bytes_down", 0))}
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


def _pictures(path: Path, missing: list[Facts]) -> list[Facts]:
    """Synthetic images that left the sites, as data for the page. They are releases: showing them costs nothing."""
    try:
        raw = run_files.read_bytes(path, "gen/sample.png", most=MOST_PICTURE_BYTES)
    except (FileNotFoundError, UserError):
        if (path / "gen" / "gen.npz").is_file():
            missing.append(lacking("pictures"))
        return []
    people = (path / "gen" / "patients.jsonl").is_file()
    title = PATIENTS if people else "Synthetic images, a row for each class"
    return [{"title": title, "png": base64.b64encode(raw).decode(), "private": False}]


def _records(path: Path, folder: str) -> Iterator[Facts]:
    """The JSON files that attacks and audits leave behind, oldest name first."""
    for file in sorted((path / folder).glob("*.json")):
        try:
            value = run_files.read_json(path, f"{folder}/{file.name}")
        except (FileNotFoundError, UserError):
            yield {"name": file.stem, "unreadable": True}
            continue
        rows = value if isinstance(value, list) else [value]
        yield from ({"name": file.stem, **row} for row in rows if isinstance(row, dict))
