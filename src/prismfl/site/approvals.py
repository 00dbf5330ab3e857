"""What waits for a person: what is asked and would leave, in plain words, and what people decided on it.

`outbox/ID/` holds what to look at and the decisions; the charged bytes themselves stay in the ledger. A decision is for
one release, its bytes and its config alone, has a name and a reason, and stands in the egress log before it counts.
"""

from __future__ import annotations

import hashlib
import json
import time
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch

from prismfl.core.payloads import JsonDict, SyntheticSet
from prismfl.core.records import Records
from prismfl.core.release import Release
from prismfl.data.pictures import save_grid
from prismfl.errors import UserError
from prismfl.files.atomic import make_folder, opener, write_atomically
from prismfl.files.bounded import read_json
from prismfl.methods import METHODS
from prismfl.site.egress import EgressLog

Decision = Literal["waiting", "approved", "denied"]
HELD, WORDS = "held.json", "decisions.json"
MOST_NAME, MOST_REASON = 80, 500
COMPARED, AGAINST = 500, 20_000
"""So many samples are compared with so many records."""


def approval_id(release: Release, raw: bytes, config: str) -> str:
    """A name for people to type. It stands for one release, one payload and one config, and for nothing like them."""
    named = "\0".join((release.id, hashlib.sha256(raw).hexdigest(), config))
    return hashlib.sha256(named.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Word:
    """What one person said about a release."""

    decision: Decision
    by: str
    reason: str
    time: str


@dataclass(frozen=True)
class Held:
    """A release that waits for a person, or has been decided on: `needed` people must approve it, one can deny it."""

    id: str
    release: str
    decision: Decision
    files: tuple[str, ...]
    words: tuple[Word, ...] = ()
    needed: int = 1


class Approvals:
    """The releases of a site that were put up for approval."""

    def __init__(self, folder: Path) -> None:
        self.site, self.folder = folder, folder / "outbox"

    def hold(
        self,
        release: Release,
        raw: bytes,
        description: JsonDict,
        *,
        plan: str,
        left: str = "",
        needed: int = 1,
        records: Records | None = None,
        tell: Callable[[str], None] = lambda name: None,
    ) -> str:
        """Put a release up for approval (a second time is a no-op) and return its id. What a person decides is for
        this release, these bytes and this config alone. `tell` hears the id, once."""
        name = approval_id(release, raw, str(description["digest"]))
        place = self.folder / name
        if not (place / HELD).exists():
            held = {"release": release.id, "cost": release.cost.describe(), "noise": release.noise}
            held |= {"digest": hashlib.sha256(raw).hexdigest(), "config": str(description["digest"])}
            asked = config_words(description)
            facts = {"plan": plan, "left": left, "bytes": len(raw), "asked": asked, "needed": needed}
            facts |= {"items": item_words(release), "nearest": nearest_words(release, records)}
            _write_preview(release, place, description, {**held, **facts})
            write_atomically(place / HELD, json.dumps({**held, **facts}, indent=2).encode())
            tell(name)
        return name

    def decide(self, name: str, decision: Decision, *, by: str, reason: str) -> Held:
        """Write down what a person decides on a held release. It is approved once as many people as it needs have said
        so, and denied by one; what is decided stands."""
        held, by, reason = self.find(name), _text("name", by, MOST_NAME), _text("reason", reason, MOST_REASON)
        if held.decision != "waiting":
            raise UserError(f"Release '{name}' was {held.decision} before; that stands.")
        if decision == "approved" and _same(by) in {_same(word.by) for word in held.words}:
            raise UserError(f"{by} has approved '{name}' already; it needs another person as well.")
        digest = str(read_json(self.folder / name / HELD)["digest"])
        EgressLog(self.site).decision(name, held.release, digest=digest, decision=decision, by=by, reason=reason)
        words = [*held.words, Word(decision, by, reason, datetime.now(UTC).isoformat(timespec="seconds"))]
        write_atomically(self.folder / name / WORDS, json.dumps([asdict(word) for word in words], indent=2).encode())
        return self.find(name)

    def find(self, name: str) -> Held:
        """The held release of this id, with its decision and the files to look at."""
        place = self.folder / name
        if "/" in name or not (place / HELD).exists():
            known = ", ".join(held.id for held in self.all() if held.decision == "waiting")
            raise UserError(f"No release '{name}' in the outbox; waiting: {known or 'none'}.")
        told = read_json(place / HELD)
        needed = int(told.get("needed", 1))
        words = tuple(Word(**word) for word in (read_json(place / WORDS) if (place / WORDS).exists() else ()))
        files = tuple(sorted(str(p) for p in place.iterdir() if p.suffix in (".txt", ".png")))
        return Held(name, str(told["release"]), _decided(place, words, needed), files, words, needed)

    def facts(self, name: str) -> JsonDict:
        """What there is to know about a held release before one decides, in plain values."""
        held = self.find(name)
        return {**read_json(self.folder / name / HELD), **asdict(held), "pictures": self.pictures(name)}

    def pictures(self, name: str) -> list[str]:
        """The names of the pictures of a held release."""
        return sorted(path.name for path in (self.folder / self.find(name).id).glob("*.png"))

    def all(self) -> list[Held]:
        """Every held release, by id, decided or not."""
        return [self.find(p.parent.name) for p in sorted(self.folder.glob(f"*/{HELD}"))]

    def wait(self, name: str, seconds: float, *, poll: float = 0.5) -> Decision:
        """The decision, or "waiting" when nobody has decided in time."""
        end = time.monotonic() + seconds
        while (decision := self.find(name).decision) == "waiting" and time.monotonic() < end:
            time.sleep(min(poll, max(0.0, end - time.monotonic())))
        return decision


def _decided(place: Path, words: tuple[Word, ...], needed: int) -> Decision:
    before: Any = place / "decision"  # of an earlier version, without a name
    if before.exists():
        found: Decision = before.read_text()
        return found
    if any(word.decision == "denied" for word in words):
        return "denied"
    approved = {_same(word.by) for word in words if word.decision == "approved"}
    return "approved" if len(approved) >= needed else "waiting"


def _same(name: str) -> str:
    """One person under two spellings is one person."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _text(what: str, given: str, most: int) -> str:
    text = " ".join(given.split())
    if not text or len(text) > most or not text.isprintable():
        raise UserError(f"Expected a {what} of 1 to {most} printable characters for a decision, got '{given[:40]}'.")
    return text


def config_words(description: JsonDict) -> list[str]:
    """What a run is, for a person: its method, what it costs and asks for, who takes part."""
    config = description["config"]
    settings = ", ".join(f"{name} {value}" for name, value in sorted(config["settings"].items()) if value is not None)
    looked = config.get("encoder")
    return [
        f"method  {config['method']}, {config['settings'].get('rounds')} rounds, model {config['model']}",
        *([f"does    {METHODS[config['method']].summary}"] if config["method"] in METHODS else []),
        *([f"encoder {looked}, public"] if looked else []),
        f"says    epsilon {config['epsilon']}, delta {config['delta']}, unit {config['unit']}, {config['relation']} "
        "(the server's words)",
        f"sites   {', '.join(description['sites'][:20])}",
        f"config  {description['digest']}",
        f"details {settings}",
    ]


def item_words(release: Release) -> list[str]:
    """What each part of a release is: its kind, type, shape and range."""
    lines = []
    for name, payload in release.items.items():
        for part, tensor in payload.tensors.items():
            numbers = tensor.double()
            span = f"{numbers.min():.4g} .. {numbers.max():.4g}" if tensor.numel() else "empty"
            lines.append(f"{name}/{part}: {payload.kind}, {tensor.dtype}, {tuple(tensor.shape)}, {span}")
    return lines


def nearest_words(release: Release, records: Records | None) -> list[str]:
    """How near synthetic records lie to this site's own, beside how near those lie to each other. For the site's people
    alone: it follows the records, and never leaves."""
    lines: list[str] = []
    if records is None or len(records) < 2:
        return lines
    for name, payload in release.items.items():
        if isinstance(payload, SyntheticSet) and payload.x.shape[1:] == records.x.shape[1:] and len(payload.x):
            mine = records.take(torch.arange(min(len(records), AGAINST))).floats().x.flatten(1).double()
            made = torch.cdist(payload.x[:COMPARED].flatten(1).double(), mine).min(1).values
            own = torch.cdist(mine[:COMPARED], mine).topk(2, largest=False).values[:, 1]
            lines.append(
                f"{name}: nearest record of this site at {made.min():.4g} (median {made.median():.4g}); between its "
                f"own records {own.min():.4g} (median {own.median():.4g})"
            )
    return lines


def _write_preview(release: Release, place: Path, description: JsonDict, facts: JsonDict) -> None:
    """A picture grid for images, the first rows for tables, and shapes with ranges for everything else."""
    make_folder(place)
    classes = tuple(description["spec"]["classes"])
    lines = [f"release {release.id}", f"cost    {facts['cost']}", f"plan    {facts['plan']}"]
    lines += [f"left    {facts['left']}", f"noise   {release.noise}", f"size    {facts['bytes']} bytes"]
    lines += [*facts["asked"], "", *facts["items"], *facts["nearest"]]
    for name, payload in release.items.items():
        if isinstance(payload, SyntheticSet) and payload.x.ndim == 4:
            picture = place / f"{name}.png"
            open(picture, "wb", opener=opener).close()  # so that it is closed to others before it has a content
            save_grid(payload.x, payload.hard_y, picture, classes=classes)
        elif isinstance(payload, SyntheticSet):
            rows = ["\t".join(f"{v:.4g}" for v in row) for row in payload.x[:10].flatten(1).tolist()]
            lines += ["", f"first rows of {name}:", *rows]
    write_atomically(place / "preview.txt", "\n".join(lines).encode() + b"\n")
