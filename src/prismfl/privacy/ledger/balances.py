"""What the ledger's chain says: data sets, runs and charges, and the balance of each data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from prismfl.errors import LedgerError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import admission
from prismfl.privacy.ledger.admission import Cap, Rule
from prismfl.privacy.ledger.chain import Entry
from prismfl.sources import SIMULATION

Status = Literal["charged", "made", "held", "denied"]


@dataclass(frozen=True, slots=True)
class Charge:
    """One release and what it cost. `digest` and `size` are those of its payload, once it is made; `memory` is the
    digest of what the site remembers of it. `noise` says where the noise came from, where that was told."""

    seq: int
    time: str
    run: str
    dataset: str
    release: str
    cost: Cost
    digest: str
    size: int
    confirmed: bool
    status: Status = "made"
    part: str = ""
    noise: str = ""
    memory: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """The balance of one data set. `used` is the part of the cap's budget that is held, None without a cap; above 1
    after a plan that was admitted by its PLD epsilon and leaves nothing."""

    dataset: str
    names: tuple[str, ...]
    records: int
    cap: Cap | None
    spent: tuple[Cost, ...]
    used: float | None
    open_runs: tuple[str, ...]
    closed_runs: tuple[str, ...]
    releases: int
    unconfirmed: int
    seeded: int = 0  # releases whose noise follows from a seed: for them nothing is promised
    by_hand: Cap | None = None  # what the keeper has set: no other cap goes beyond it


@dataclass(slots=True)
class Reserved:
    """A reservation and what was released under it."""

    name: str
    dataset: str
    plan: Cost
    rule: Rule
    parts: dict[str, Cost] = field(default_factory=dict)
    open: bool = True
    last: str = ""

    def charged_on(self, part: str) -> Cost:
        """What was charged on one of the disjoint parts of the data."""
        return self.parts.get(part, Cost.zero(self.plan.unit, self.plan.relation))

    @property
    def charged(self) -> Cost:
        """What a record pays at most: the worst of the parts, of which it lies in one."""
        costs = list(self.parts.values()) or [self.charged_on("")]
        worst = next((cost for cost in costs if all(cost.covers(other) for other in costs)), None)
        if worst is not None:
            return worst
        if self.plan.relation != "add-remove":
            return reduce(Cost.beside, costs)
        branches = dict.fromkeys(branch for cost in costs for branch in cost.branches)
        return Cost(tuple(branches), self.plan.unit, self.plan.relation)

    @property
    def held(self) -> Cost:
        """Its plan while open, and under rule "pld" once anything was charged; otherwise what was charged."""
        in_full = self.open or (self.rule == "pld" and not self.charged.is_zero)
        return self.plan if in_full else self.charged


@dataclass(slots=True)
class Known:
    """A data set under all its names."""

    id: str
    names: list[str]
    cap: Cap | None
    records: int
    digest: str
    order: int | None = None
    """What an earlier version fixed by the first plan; see `admission`."""
    by_hand: Cap | None = None
    """The cap that the keeper last set by hand: no other goes beyond it."""


@dataclass(slots=True)
class Balances:
    """What the chain says so far; built by `apply` alone."""

    entries: list[Entry] = field(default_factory=list)
    datasets: dict[str, Known] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)
    runs: dict[tuple[str, str], Reserved] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)
    by_site: dict[str, list[str]] = field(default_factory=dict)
    """The releases by their run and site: of thousands of sites, each looks only at its own."""
    away: bool = False
    """Whether the ledger was moved to another machine, and this is what was left behind."""
    lost: int = 0
    """How many entries were lost when a backup was restored."""
    decided: set[str] = field(default_factory=set)
    """Data sets whose cap the keeper has set by hand since then."""

    def closed_because(self, dataset: str) -> str | None:
        """Why nothing more may be spent on a data set, whatever its cap: in words, or None."""
        if self.away:
            return "this ledger was moved to another machine (`prismfl ledger move`) and goes on there."
        if self.lost and self.resolve(dataset) not in {self.resolve(known) for known in self.decided}:
            return (
                f"{self.lost} entries of this ledger are lost, and what they cost is not known. Decide what may still "
                f"be spent: prismfl ledger cap {self.resolve(dataset)} EPSILON."
            )
        return None

    def resolve(self, dataset: str) -> str:
        """The id of the data set that this one has become a part of, or its own."""
        while dataset in self.absorbed:
            dataset = self.absorbed[dataset]
        return dataset

    def dataset(self, dataset: str) -> Known:
        """The data set with this id, or the one that it has become a part of; an unknown id is an error."""
        found = self.datasets.get(self.resolve(dataset))
        if found is None:
            known = ", ".join(self.datasets) or "none"
            raise UserError(f"No data set {dataset!r} in the ledger (known: {known}).")
        return found

    def runs_on(self, dataset: str) -> list[Reserved]:
        """All reservations on a data set and on those that have become a part of it."""
        return [run for run in self.runs.values() if self.resolve(run.dataset) == dataset]

    def standing(self, dataset: str) -> list[Cost]:
        """What runs hold of a data set's budget."""
        return [held for _, held in self._holders(dataset)]

    def declared(self, dataset: str) -> Cost | None:
        """The plan that was admitted by its PLD epsilon, if all that stands was admitted beside it."""
        rules = [(run.rule, held) for run, held in self._holders(dataset)]
        plans = [held for rule, held in rules if rule == "pld"]
        return plans[0] if len(plans) == 1 and all(rule in ("pld", "beside") for rule, _ in rules) else None

    def _holders(self, dataset: str) -> list[tuple[Reserved, Cost]]:
        """The runs that hold something. A plan admitted by its PLD epsilon holds all of it if others were admitted
        beside it and hold something, even when nothing came of it."""
        runs, kept, latest = self.runs_on(dataset), None, None
        for run in runs:
            latest = run if run.rule == "pld" else latest
            if run.rule == "beside" and not run.held.is_zero:
                kept = latest
        held = [(run, run.plan if run is kept else run.held) for run in runs]
        return [(run, cost) for run, cost in held if not cost.is_zero]

    def run(self, name: str, dataset: str) -> Reserved | None:
        """A run's reservation on a data set, or on one that has become a part of it."""
        exact = self.runs.get((name, dataset))
        found = (known for known in self.runs_on(self.resolve(dataset)) if known.name == name)
        return exact or next(found, None)

    def charges_on(self, dataset: str) -> list[Charge]:
        """All charges on a data set and on those that have become a part of it."""
        return [charge for charge in self.charges.values() if self.resolve(charge.dataset) == dataset]

    def spent(self, dataset: str) -> tuple[Cost, ...]:
        """The charges on a data set, added up where they add: one sum for each unit and relation. A record may lie in
        another branch of each run, so runs add by `beside`."""
        sums: dict[tuple[str, str], Cost] = {}
        for run in self.runs_on(dataset):
            key, cost = (run.charged.unit, run.charged.relation), run.charged
            if cost.is_zero:
                continue
            old = sums.get(key)
            sums[key] = cost if old is None else old.beside(cost)
        return tuple(sums.values())

    def status(self, dataset: Known) -> DatasetStatus:
        """The balance of a data set, as it is shown."""
        runs, charges, used = self.runs_on(dataset.id), self.charges_on(dataset.id), None
        if dataset.cap is not None:
            standing, declared = self.standing(dataset.id), self.declared(dataset.id)
            used = admission.used(dataset.cap, order=dataset.order, standing=standing, declared=declared)
        return DatasetStatus(
            dataset=dataset.id,
            names=tuple(dataset.names),
            records=dataset.records,
            cap=dataset.cap,
            spent=self.spent(dataset.id),
            used=used,
            open_runs=tuple(run.name for run in runs if run.open),
            closed_runs=tuple(run.name for run in runs if not run.open),
            releases=len(charges),
            unconfirmed=sum(not charge.confirmed for charge in charges),
            seeded=sum(charge.noise == SIMULATION for charge in charges),
            by_hand=dataset.by_hand,
        )

    def apply(self, entry: Entry) -> None:
        """Takes in the next entry of the chain; one of an unknown kind is refused."""
        body = entry.body
        if entry.kind == "dataset":
            self.datasets[body["dataset"]] = Known(
                body["dataset"], [body["name"]], admission.cap_from_json(body["cap"]), body["records"], body["digest"]
            )
            self.names[body["name"]] = body["dataset"]
        elif entry.kind == "records":
            self._apply_records(body)
        elif entry.kind == "cap":
            target = self.datasets[body["dataset"]]
            target.cap, target.order = admission.cap_from_json(body["cap"]), None
            if body.get("by_hand"):
                self.decided.add(target.id)
                target.by_hand = target.cap
        elif entry.kind == "reserve":
            plan = Cost.from_json(body["plan"])
            self.runs[body["run"], body["dataset"]] = Reserved(
                body["run"], body["dataset"], plan, body["rule"], last=entry.time
            )
            order = body["order"]
            self.datasets[body["dataset"]].order = None if order is None else account.ORDERS.index(order)
        elif entry.kind in ("release", "charge"):
            self._apply_charge(entry)
        elif entry.kind == "made":
            status = "held" if body["held"] else "made"
            gone = {} if body.get("kept", True) else {"confirmed": True}
            self._change(body["release"], status=status, **_of(body, "digest", "size", "memory"), **gone)
            for release in self.outlived(body["release"]):
                self._change(release, memory=None)
        elif entry.kind in ("approve", "deny"):
            forgotten = {} if entry.kind == "approve" else {"memory": None}
            self._change(body["release"], status="made" if entry.kind == "approve" else "denied", **forgotten)
        elif entry.kind == "confirm":
            self._apply_arrival(body["release"])
        elif entry.kind == "close":
            for run in self.runs.values():
                run.open = run.open and run.name != body["run"]
            for release in self.releases_with_memory(body["run"]) if body.get("forget") else ():
                self._change(release, memory=None)
        elif entry.kind == "move":
            self.away = True
        elif entry.kind == "restore":
            self.away, self.lost = False, self.lost + body["lost"]
            self.decided = set() if body["lost"] else self.decided
        elif entry.kind not in ("create", "head"):
            raise LedgerError(f"Entry {entry.seq} of the ledger was written by another version of prismfl.")
        self.entries.append(entry)

    def _apply_records(self, body: Mapping[str, Any]) -> None:
        target = self.datasets[body["dataset"]]
        target.records, target.digest = body["records"], body["digest"]
        cap = admission.cap_from_json(body["cap"])
        if cap != target.cap:
            target.cap, target.order = cap, None
        for other in body["absorbs"]:
            self.absorbed[other] = target.id
            gone = self.datasets.pop(other)
            target.by_hand = admission.within(target.by_hand, gone.by_hand)
            for name in gone.names:
                target.names.append(name)
                self.names[name] = target.id
        if body["name"] not in target.names:
            target.names.append(body["name"])
            self.names[body["name"]] = target.id

    def charge(self, release: str) -> Charge:
        """The charge of a release; an unknown release is an error."""
        found = self.charges.get(release)
        if found is None:
            raise UserError(f"No release {release!r} in the ledger.")
        return found

    def releases_of(self, run: str, site: str) -> list[tuple[str, Charge]]:
        """A site's releases of a run, in the order of their rounds."""
        found = [(name, self.charges[name]) for name in self.by_site.get(f"{run}/{site}", ())]
        return sorted(found, key=lambda pair: int(pair[0].rsplit("/", 1)[1]))

    def releases_with_memory(self, run: str) -> list[str]:
        """The releases of a run of which the site still remembers something."""
        return [name for name, charge in self.charges.items() if charge.run == run and charge.memory is not None]

    def outlived(self, release: str) -> list[str]:
        """Releases whose memory is no longer needed after this one: two rounds of the same site are kept, since the
        server may go back by one."""
        run, site, _ = release.rsplit("/", 2) if release.count("/") >= 2 else ("", "", "")
        kept = [name for name, charge in self.releases_of(run, site) if charge.memory is not None and name != release]
        return [name for name in kept[:-2] if self.charges[name].status == "made"]

    def _change(self, release: str, **changes: Any) -> None:
        self.charges[release] = replace(self.charges[release], **changes)

    def _apply_arrival(self, release: str) -> None:
        self._change(release, confirmed=True)

    def _apply_charge(self, entry: Entry) -> None:
        body, cost = entry.body, Cost.from_json(entry.body["cost"])
        for release in body.get("arrived", ()):
            self._apply_arrival(release)
        run, part = self.runs[body["run"], body["reserved"]], body.get("part", "")
        run.parts[part], run.last = run.charged_on(part) + cost, entry.time
        self.by_site.setdefault(body["release"].rpartition("/")[0], []).append(body["release"])
        self.charges[body["release"]] = Charge(
            seq=entry.seq,
            time=entry.time,
            run=body["run"],
            dataset=body["dataset"],
            release=body["release"],
            cost=cost,
            digest=body.get("digest", ""),
            size=body.get("size", 0),
            confirmed=False,
            status="made" if entry.kind == "release" else "charged",
            part=part,
            noise=body.get("noise", ""),
        )


def _of(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: body[name] for name in names}
