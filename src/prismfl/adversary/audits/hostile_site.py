"""A method at sites of its own, for an auditor who plays the server: real offices, real files, real ledgers."""

from __future__ import annotations

import csv
import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from prismfl.adversary.audits import hostile_patients
from prismfl.core.job import Job
from prismfl.core.method import Method
from prismfl.core.payloads import Items, JsonDict, Payload, Weights, encode
from prismfl.core.rounds import initial_state
from prismfl.data import DATASETS, Spec
from prismfl.data.declared import BREAST_CANCER
from prismfl.data.pictures import save_sheet
from prismfl.data.schema_file import schema_words
from prismfl.privacy.ledger.balances import Charge
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.config import RunConfig
from prismfl.runs.description import describe, digest_of, job_of
from prismfl.secure import protocol as secure
from prismfl.site import office as offices
from prismfl.site.config import SiteConfig, as_toml, ledger_of
from prismfl.site.keys import make_site_keys
from prismfl.site.office import Office
from prismfl.transport.post import Answer, Kind, Request

NAMES = ("north", "south", "west")
VICTIM = NAMES[0]
REFUSED = Answer("code", code=offices.REFUSED, site=VICTIM)
RECORDS = 24
PUBLIC = 60
SIGMA = 1.3
LARGEST = torch.finfo(torch.float32).max
NEEDLE = 0
"""The number of a record (a corner of a digit, a column of a table) that only one record has set."""
WORLDS = ("all", "without", "label", "unreadable", "out of bounds")
"""All records; without one of them; and with one more that lies outside of what the site has declared."""


# What the site has


def write_data(folder: Path, kind: str, world: str = "all") -> dict[str, Any]:
    """A site's own records as files, and the keys of site.toml that say what they are."""
    folder.mkdir(parents=True)
    if kind in hostile_patients.KINDS:
        return hostile_patients.write_patients(folder, kind, RECORDS - (world == "without"), world)
    found = _pictures(folder, world) if kind == "image" else _table(folder, world)
    return {key: value for key, value in found.items() if key in SiteConfig.model_fields}


def _pictures(folder: Path, world: str) -> dict[str, Any]:
    from prismfl.data import load

    data, classes = load("digits"), DATASETS["digits"].classes
    place = folder / "pictures"
    for name in classes:
        (place / name).mkdir(parents=True)
    for i in range(RECORDS - (world == "without")):
        picture = data.x_train[i].clone()
        picture[0, 0, NEEDLE] = float(i == RECORDS - 1)
        save_sheet(picture, place / classes[int(data.y_train[i])] / f"{i}.png", scale=1)
    if world == "label":
        save_sheet(data.x_train[RECORDS], place / "nobody" / "odd.png", scale=1)
    elif world == "unreadable":
        (place / classes[0] / "odd.png").write_bytes(b"\x89PNG\r\n\x1a\nnot a picture")
    elif world == "out of bounds":
        Image.fromarray(np.full((13, 9, 3), 255, np.uint8)).save(place / classes[0] / "odd.png")
    return {"data": str(place), "classes": list(classes), "image_size": 8, "channels": 1}


def _table(folder: Path, world: str) -> dict[str, Any]:
    from sklearn import datasets

    bunch = datasets.load_breast_cancer()
    rows: list[list[Any]] = [[*map(float, x), BREAST_CANCER.classes[y]] for x, y in zip(bunch.data, bunch.target)]
    rows = rows[: RECORDS - (world == "without")]
    odd = list(rows[0])
    if world in ("label", "unreadable", "out of bounds"):
        at, value = {"label": (-1, "nobody"), "unreadable": (0, "nan"), "out of bounds": (0, "1e308")}[world]
        odd[at] = value
        rows.append(odd)
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*map(str, bunch.feature_names), "outcome"], *rows])
    words = schema_words(replace(BREAST_CANCER, label="outcome"))
    (folder / "schema.yaml").write_text(json.dumps(words))  # JSON is YAML
    return {"data": str(folder / "table.csv"), "schema_file": str(folder / "schema.yaml"), "label": "outcome"}


# What the server sends


def forged(told: JsonDict, **changes: Any) -> JsonDict:
    """The same request with other words in its config, sealed anew: whoever runs the server can do that."""
    return sealed(told, config={**told["config"], **changes})


def sealed(told: JsonDict, **changes: Any) -> JsonDict:
    """The request with these changes and the digest that fits them."""
    made = {**told, **changes}
    return {**made, "digest": digest_of(made)}


Change = Callable[[int, torch.Tensor], torch.Tensor]


def _needle(i: int, t: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(t)
    if t.ndim >= 2:
        made.reshape(len(t), -1)[:, NEEDLE] = LARGEST
    return made


CHANGES: dict[str, Change] = {
    "zero": lambda i, t: torch.zeros_like(t),
    "largest": lambda i, t: torch.full_like(t, LARGEST),
    "least": lambda i, t: torch.full_like(t, -LARGEST),
    "1e30 times": lambda i, t: t * 1e30,
    "1e-38": lambda i, t: torch.full_like(t, 1e-38),
    "dead layers": lambda i, t: torch.full_like(t, 1e30 if i % 2 else 0.0),
    "huge beside nothing": lambda i, t: torch.full_like(t, 1e-30 if i % 2 else 1e30),
    "needle": _needle,
}
"""Finite weights that a server may send: every kernel must keep its bound at each."""


def hostile(items: Items, change: Change) -> dict[str, Payload]:
    """The same items with `change` applied to every tensor of floating-point numbers."""
    made: dict[str, Payload] = {}
    for name, item in items.items():
        tensors = {
            n: change(i, t) if t.is_floating_point() else t for i, (n, t) in enumerate(sorted(item.tensors.items()))
        }
        made[name] = type(item)(tensors, item.spec)
    return made


def malformed(items: Items, round: int) -> dict[str, bytes]:
    """States that no honest server sends: numbers that no payload can hold, other shapes, other items, rubbish."""
    header = {"round": round}
    mark = 1.2345678e-5
    marked = hostile({**items, "more": Weights({"x": torch.zeros(3)})}, lambda i, t: torch.full_like(t, mark).float())
    raw = encode(marked, header)
    other = {k: Weights({n: t.flatten()[:1] for n, t in p.tensors.items()}) for k, p in items.items()}
    ints = {k: Weights({n: t.to(torch.int64) + 2**40 for n, t in p.tensors.items()}) for k, p in items.items()}
    return {
        "NaN": raw.replace(struct.pack("<f", mark), struct.pack("<f", float("nan"))),
        "infinite": raw.replace(struct.pack("<f", mark), struct.pack("<f", float("inf"))),
        "other shapes": encode(other, header),
        "whole numbers": encode(ints, header),
        "nothing": encode({}, header),
        "one more": encode({**items, "surprise": Weights({"x": torch.zeros(2)})}, header),
        "cut short": encode(items, header)[:-1],
        "rubbish": b"rubbish",
        "empty": b"",
    }


# Sites under question


@dataclass
class Bench:
    """A method and where its trials lie; counts what was asked."""

    method: Method
    folder: Path
    kind: str = "image"
    questions: int = 0
    charges: int = 0
    towns: int = 0

    @property
    def shared(self) -> bool:
        """At client level a site promises its records nothing but in a secure sum: there it is audited."""
        return self.method.guarantee == "client"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The method's tiny settings, with the audit's sigma where the method has one."""
        found = dict(self.method.tiny)
        if self.kind in hostile_patients.KINDS and "covariance" in found:
            found["covariance"] = found["rank"]
        return {**found, "sigma": SIGMA} if "sigma" in self.method.settings.model_fields else found

    def describe(self, *, shared: bool | None = None, run: str = "audit", **changes: Any) -> JsonDict:
        """An honest request for this method at its tiny setting."""
        spec = DATASETS["digits"] if self.kind == "image" else DATASETS["breast-cancer"]
        schema = None if self.kind == "image" else replace(BREAST_CANCER, label="outcome")
        facts = Spec("audit", spec.kind, spec.shape, spec.classes, 0, "", "")
        if self.kind in hostile_patients.KINDS:
            facts, schema = hostile_patients.facts(self.kind), None
        values: dict[str, Any] = {"method": self.method.name, "data": "own", "model": "mlp:8", "records": RECORDS}
        values |= {"settings": self.settings, "public_count": PUBLIC, "tuning": "fixed"}
        if self.shared if shared is None else shared:
            values["secure"] = {"quorum": 2}
        return describe(RunConfig(**{**values, **changes}), facts, NAMES, run=run, schema=schema)

    def town(self, *, shared: bool | None = None, world: str = "all", **changes: Any) -> Town:
        """New sites with new ledgers: the one under question, and its peers where there are secure sums."""
        place = self.folder / str(self.towns)
        self.towns += 1
        secured = self.shared if shared is None else shared
        kinds = {"statistics"} if secured else {kind.kind for kind in self.method.leaves.values()}
        made = {}
        for name in NAMES if secured else NAMES[:1]:
            own = write_data(place / f"{name}-data", self.kind, world)
            values = {"name": name, **own, "ledger": str(place / f"{name}-ledger"), "cap": 1e5, "delta": 1e-5}
            values |= {"methods": [self.method.name], "releases": sorted(kinds), "honest": len(NAMES), **changes}
            made[name] = _open(place / name, SiteConfig(**values))
        if secured:
            _introduce(made)
        return Town(self, made, secured)


def _open(folder: Path, config: SiteConfig) -> Office:
    folder.mkdir(parents=True)
    (folder / "site.toml").write_text(as_toml(config))
    office = Office.open(folder)
    try:
        office.preload()  # as `site check` does: the data are read before anybody asks
    except Exception:  # a record that the reader trips over: what the server hears of it is what is under audit
        return office
    return office


def _introduce(made: Mapping[str, Office]) -> None:
    for office in made.values():
        make_site_keys(office.folder / "keys")
    for name, office in made.items():
        (office.folder / "peers").mkdir()
        for other in set(made) - {name}:
            key = (made[other].folder / "keys" / "sign.pub").read_bytes()
            (office.folder / "peers" / f"{other}.pub").write_bytes(key)


@dataclass
class Town:
    """The site under question, with its peers in a secure sum."""

    bench: Bench
    sites: dict[str, Office]
    shared: bool
    letters: dict[Any, str] = field(default_factory=dict)
    counted: int = 0

    @property
    def victim(self) -> Office:
        """The office of the site under question."""
        return self.sites[VICTIM]

    def ask(
        self,
        kind: Kind,
        told: JsonDict,
        round: int = 0,
        *,
        state: bytes = b"",
        turn: str = "",
        words: str = "",
        site: str = VICTIM,
    ) -> Answer:
        """A site's answer to one request; counts the question, and what it made the victim charge."""
        self.bench.questions += 1
        answer = self.deliver(site, Request(kind, told, round, 0.0, state, turn, words))
        if site == VICTIM:
            before, self.counted = self.counted, len(self.charged())
            self.bench.charges += self.counted - before
        return answer

    def deliver(self, site: str, request: Request) -> Answer:
        """The answer of a site's office to a request."""
        return self.sites[site].answer(request)

    def round(self, told: JsonDict, round: int = 0, *, state: bytes | None = None) -> Answer:
        """The site's release of a round; in a secure sum after the turns that come before it, told the truth."""
        down = honest(told, round) if state is None else state
        if not self.shared:
            return self.ask("round", told, round, state=down)
        return self.ask("round", told, round, state=down, turn="numbers", words=self._letters(told, round))

    def _letters(self, told: JsonDict, round: int) -> str:
        name = (told["run"], told["digest"], round)
        if name not in self.letters:
            job, state = job_of(told, with_public=False), honest(told, round)
            answers: dict[str, dict[str, bytes]] = {}
            for turn in ("keys", "letters"):
                words, found = secure.told(job, turn, answers), {}
                for site in words:
                    found[site] = self.ask("round", told, round, state=state, turn=turn, words=words[site], site=site)
                if any(answer.kind != "release" for answer in found.values()):
                    return ""
                answers[turn] = {site: answer.body for site, answer in found.items()}
            self.letters[name] = secure.told(job, "numbers", answers)[VICTIM]
        return self.letters[name]

    def charged(self, run: str | None = None) -> list[Charge]:
        """The charges on the victim's ledger, of one run or of all."""
        place = ledger_of(self.victim.folder, self.victim.config)
        if not place.exists():
            return []
        with Ledger.open(place) as ledger:
            return ledger.charges(run=run)

    def reserved(self) -> bool:
        """Whether the victim has begun a ledger."""
        return ledger_of(self.victim.folder, self.victim.config).exists()

    def places(self) -> list[Path]:
        """Where the site's records lie: its files and what it has read from them."""
        return [Path(self.victim.config.data).resolve(), (self.victim.folder / "data").resolve()]


_STATES: dict[str, tuple[Job, Items]] = {}


def start(told: JsonDict) -> tuple[Job, Items]:
    """The job of an honest request and the state it begins with; made once."""
    if told["digest"] not in _STATES:
        job = job_of(told)
        _STATES[told["digest"]] = job, initial_state(job).items
    job, items = _STATES[told["digest"]]
    return replace(job, run=told["run"]), items


def honest(told: JsonDict, round: int = 0) -> bytes:
    """The state that an honest request begins with, encoded for a round."""
    return encode(start(told)[1], {"round": round})


# What is opened

_watched: list[tuple[list[Path], list[str]]] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or event not in ("open", "os.listdir", "os.scandir") or not isinstance(arguments[0], str | bytes):
        return
    path = Path(arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="replace")).absolute()
    for places, seen in _watched:
        if any(path.is_relative_to(place) for place in places):
            seen.append(path.name)


@contextmanager
def watching(places: list[Path]) -> Iterator[list[str]]:
    """The names of files and folders under `places` that this process opens meanwhile."""
    if not _hooked:
        sys.addaudithook(_hook)  # for the life of the process: the interpreter takes none back
        _hooked.append(True)
    entry: tuple[list[Path], list[str]] = (places, [])
    _watched.append(entry)
    try:
        yield entry[1]
    finally:
        _watched.remove(entry)
