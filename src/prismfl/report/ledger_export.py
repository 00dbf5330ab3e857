"""A year of a ledger for an auditor: JSON that is signed, and a page. What left and what it cost, never how many
records there are: the auditor need not be somebody who may know."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from prismfl.errors import UserError
from prismfl.files.bounded import read_json
from prismfl.files.fresh import write_new
from prismfl.privacy import account
from prismfl.privacy.ledger.balances import Balances, Charge, DatasetStatus
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.chain import Entry
from prismfl.runs.html import escaped, facts_table, grid_table
from prismfl.site.keys import make_signing_key, signing_key, verifying_key
from prismfl.version import __version__

SCHEMA = 1
MOST_BYTES = 256 * 2**20
KEY = "export"
_RELEASES = ("release", "charge", "made", "confirm")
_TOLD = ("dataset", "name", "run", "release", "cap", "absorbs", "entries", "lost", "by_hand")
"""What an event tells of its entry. Not `records` nor `digest`: a data set's count and prints are its records'."""


def write_export(path: Path, folder: Path, *, year: int | None = None, key: Path | None = None) -> list[Path]:
    """The year's export below `folder`: what was written. Nothing there is replaced."""
    year = datetime.now(UTC).year - 1 if year is None else year
    with Ledger.open(path, create=False) as ledger:
        ledger.verify()
        told = year_of(ledger, year)
    if key is None:
        key = path.parent / f"{KEY}.key"
        if not key.exists():
            make_signing_key(path.parent / KEY)
    raw = signed(told, signing_key(key))
    name = folder / f"ledger-{year}"
    files = {name.with_suffix(".json"): raw, name.with_suffix(".html"): page(told).encode()}
    write_new(files)
    return list(files)


def year_of(ledger: Ledger, year: int) -> dict[str, Any]:
    """What the ledger says of a year, in plain values."""
    entries = ledger.history()
    until = [entry for entry in entries if entry.time[:4] <= f"{year:04d}"]
    within = [entry for entry in until if entry.time[:4] == f"{year:04d}"]
    if not within:
        raise UserError(f"The ledger has no entry of {year}; it goes from {entries[0].time} to {entries[-1].time}.")
    before, after = _balances(until[: -len(within)]), _balances(until)
    ended = {known.id: after.status(known) for known in after.datasets.values()}
    first, last = within[0].seq, within[-1].seq
    charges = [charge for charge in after.charges.values() if first <= charge.seq]
    return {
        "schema": SCHEMA,
        "prismfl": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "year": year,
        "entries": {"first": first, "last": last, "of": len(entries), "head": ledger.chain.head_at(last).hex()},
        "data sets": [_dataset(before, status, charges) for status in ended.values()],
        "releases": [_release(charge) for charge in charges],
        "events": [_event(entry) for entry in within if entry.kind not in _RELEASES],
    }


def signed(told: Mapping[str, Any], key: Ed25519PrivateKey) -> bytes:
    """The export with a signature over its canonical bytes, as JSON."""
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    envelope = {"export": told, "key": public, "signature": base64.b64encode(key.sign(_canonical(told))).decode()}
    return json.dumps(envelope, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def check_export(file: Path, key: Path) -> dict[str, Any]:
    """The export in a file, if the owner of `key` has signed it; the key that the file names counts for nothing."""
    envelope = read_json(file, limit=MOST_BYTES)
    try:
        told, signature = envelope["export"], base64.b64decode(envelope["signature"], validate=True)
        verifying_key(key).verify(signature, _canonical(told))
    except (KeyError, TypeError, ValueError, InvalidSignature) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"'{file}' does not carry the signature of '{key}': it was changed, or another signed it."
        ) from None
    found: dict[str, Any] = told
    return found


def page(told: Mapping[str, Any]) -> str:
    """The same for people: one page that fetches nothing."""
    span = told["entries"]
    facts = [
        ("entries", f"{span['first']} to {span['last']} of {span['of']}"),
        ("head of the last entry", span["head"]),
        ("made", told["made"]),
        ("prismfl", told["prismfl"]),
    ]
    sets = [{**row, "names": ", ".join(row["names"])} for row in told["data sets"]]
    releases = [{name: row[name] for name in row if name != "cost"} for row in told["releases"]]
    events = [{**row, "what": json.dumps(row["what"], sort_keys=True)} for row in told["events"]]
    parts = [facts_table(f"The ledger in {told['year']}", facts)]
    for title, rows in (("Data sets", sets), ("Releases", releases), ("Other entries", events)):
        parts.append(f"<h2>{title}</h2>{grid_table(rows) or '<p>none</p>'}")
    style = "body{font:15px sans-serif;margin:2em;max-width:90em}td{overflow-wrap:anywhere;vertical-align:top}"
    guard = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ledger {escaped(told["year"])}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{guard}"><style>{style}</style></head>'
        f"<body>{''.join(parts)}<p>The signed twin of this page is the JSON file of the same name.</p></body></html>\n"
    )


def _canonical(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _balances(entries: Sequence[Entry]) -> Balances:
    found = Balances()
    for entry in entries:
        found.apply(entry)
    return found


def _dataset(before: Balances, status: DatasetStatus, charges: Sequence[Charge]) -> dict[str, Any]:
    delta = status.cap.delta if status.cap else 1e-5
    known = before.datasets.get(status.dataset)
    mine = [charge for charge in charges if charge.dataset == status.dataset]
    return {
        "id": status.dataset,
        "names": [Path(name).name for name in status.names],
        "cap": status.cap.describe() if status.cap else "none",
        "delta": delta,
        "epsilon before": {} if known is None else _spent(before.status(known), delta),
        "epsilon after": _spent(status, delta),
        "releases in the year": len(mine),
        "seeded (no protection)": status.seeded,
    }


def _spent(status: DatasetStatus, delta: float) -> dict[str, float | str]:
    """By unit and relation, since unlike units never add; no guarantee is a value."""
    found = {f"{cost.unit}, {cost.relation}": account.epsilon(cost, delta) for cost in status.spent}
    return {words: value if math.isfinite(value) else "no DP guarantee" for words, value in found.items()}


def _release(charge: Charge) -> dict[str, Any]:
    return {
        "time": charge.time,
        "release": charge.release,
        "data set": charge.dataset,
        "status": charge.status,
        "bytes": charge.size,
        "digest": charge.digest,
        "noise": charge.noise,
        "cost": charge.cost.to_json(),
        "costs": charge.cost.describe(),
    }


def _event(entry: Entry) -> dict[str, Any]:
    what = {key: value for key, value in entry.body.items() if key in _TOLD}
    if "name" in what:
        what["name"] = Path(str(what["name"])).name
    return {"seq": entry.seq, "time": entry.time, "entry": entry.kind, "what": what}
