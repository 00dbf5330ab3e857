"""What the ledger's chain says: data sets, runs and charges, and the balance of each data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prismfl.errors import LedgerError, UserError
from prismfl.privacy import account, admission
from prismfl.privacy.admission import Cap, Rule
from prismfl.privacy.chain import Entry
from prismfl.privacy.cost import Cost


@dataclass(frozen=True, slots=True)
class Charge:
    """One release and what it cost."""

    seq: int
    time: str
    run: str
    dataset: str
    release: str
    cost: Cost
    digest: str
    size: int
    confirmed: bool


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


@dataclass(slots=True)
class Run:
    """A reservation and what was released under it."""

    name: str
    dataset: str
    plan: Cost
    rule: Rule
    charged: Cost
    open: bool = True

    @property
    def held(self) -> Cost:
        in_full = self.open or (self.rule == "pld" and not self.charged.is_zero)
        return self.plan if in_full else self.charged


@dataclass(slots=True)
class Dataset:
    """A data set under all its names."""

    id: str
    names: list[str]
    cap: Cap | None
    records: int
    digest: str
    order: int | None = None
    """What an earlier version fixed by the first plan; see `admission`."""


@dataclass(slots=True)
class Balances:
    """What the chain says so far; built by `apply` alone."""

    entries: list[Entry] = field(default_factory=list)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)
    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)

    def resolve(self, dataset: str) -> str:
        while dataset in self.absorbed:
            dataset = self.absorbed[dataset]
        return dataset

    def dataset(self, dataset: str) -> Dataset:
        found = self.datasets.get(self.resolve(dataset))
        if found is None:
            known = ", ".join(self.datasets) or "none"
            raise UserError(f"No data set {dataset!r} in the ledger (known: {known}).")
        return found

    def runs_on(self, dataset: str) -> list[Run]:
        return [run for run in self.runs.values() if self.resolve(run.dataset) == dataset]

    def standing(self, dataset: str) -> list[Cost]:
        """What runs hold of a data set's budget."""
        return [held for _, held in self._holders(dataset)]

    def declared(self, dataset: str) -> Cost | None:
        """The plan that was admitted by its PLD epsilon, if all that stands was admitted beside it."""
        rules = [(run.rule, held) for run, held in self._holders(dataset)]
        plans = [held for rule, held in rules if rule == "pld"]
        return plans[0] if len(plans) == 1 and all(rule in ("pld", "beside") for rule, _ in rules) else None

    def _holders(self, dataset: str) -> list[tuple[Run, Cost]]:
        """The runs that hold something. A plan admitted by its PLD epsilon holds all of it if others were admitted
        beside it and hold something, even when nothing came of it."""
        runs, kept, latest = self.runs_on(dataset), None, None
        for run in runs:
            latest = run if run.rule == "pld" else latest
            if run.rule == "beside" and not run.held.is_zero:
                kept = latest
        held = [(run, run.plan if run is kept else run.held) for run in runs]
        return [(run, cost) for run, cost in held if not cost.is_zero]

    def run(self, name: str, dataset: str) -> Run | None:
        """A run's reservation on a data set, or on one that has become a part of it."""
        exact = self.runs.get((name, dataset))
        found = (known for known in self.runs_on(self.resolve(dataset)) if known.name == name)
        return exact or next(found, None)

    def charges_on(self, dataset: str) -> list[Charge]:
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

    def status(self, dataset: Dataset) -> DatasetStatus:
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
        )

    def apply(self, entry: Entry) -> None:
        body = entry.body
        if entry.kind == "dataset":
            self.datasets[body["dataset"]] = Dataset(
                body["dataset"], [body["name"]], admission.cap_from_json(body["cap"]), body["records"], body["digest"]
            )
            self.names[body["name"]] = body["dataset"]
        elif entry.kind == "records":
            self._apply_records(body)
        elif entry.kind == "cap":
            target = self.datasets[body["dataset"]]
            target.cap, target.order = admission.cap_from_json(body["cap"]), None
        elif entry.kind == "reserve":
            plan = Cost.from_json(body["plan"])
            zero = Cost.zero(plan.unit, plan.relation)
            self.runs[body["run"], body["dataset"]] = Run(body["run"], body["dataset"], plan, body["rule"], zero)
            order = body["order"]
            self.datasets[body["dataset"]].order = None if order is None else account.ORDERS.index(order)
        elif entry.kind == "release":
            self._apply_release(entry)
        elif entry.kind == "confirm":
            self._apply_arrival(body["release"])
        elif entry.kind == "close":
            for run in self.runs.values():
                run.open = run.open and run.name != body["run"]
        elif entry.kind != "create":
            raise LedgerError(f"Entry {entry.seq} of the ledger was written by another version of prismfl.")
        self.entries.append(entry)

    def _apply_records(self, body: Mapping[str, Any]) -> None:
        target = self.datasets[body["dataset"]]
        target.records, target.digest = body["records"], body["digest"]
        target.cap = admission.cap_from_json(body["cap"])
        for other in body["absorbs"]:
            self.absorbed[other] = target.id
            for name in self.datasets.pop(other).names:
                target.names.append(name)
                self.names[name] = target.id
        if body["name"] not in target.names:
            target.names.append(body["name"])
            self.names[body["name"]] = target.id

    def _apply_arrival(self, release: str) -> None:
        self.charges[release] = replace(self.charges[release], confirmed=True)

    def _apply_release(self, entry: Entry) -> None:
        body, cost = entry.body, Cost.from_json(entry.body["cost"])
        for release in body.get("arrived", ()):
            self._apply_arrival(release)
        self.runs[body["run"], body["reserved"]].charged += cost
        self.charges[body["release"]] = Charge(
            seq=entry.seq,
            time=entry.time,
            run=body["run"],
            dataset=body["dataset"],
            release=body["release"],
            cost=cost,
            digest=body["digest"],
            size=body["size"],
            confirmed=False,
        )
