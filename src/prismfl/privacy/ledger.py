"""The site's ledger: what was promised to its data sets, what was spent, and the bytes that were paid for.

One SQLite file per site, durable across runs. Every fact is an entry of an append-only chain (each entry carries an
HMAC over itself and its predecessor); all balances are computed from the chain, so nothing else can be edited. Beside
the file lies an anchor (`<path>.anchor`) with the number and the head of the last entry, rewritten after each commit:
a ledger that is missing, older than its anchor, or does not verify is refused, never replaced by a fresh one. Whoever
deletes both files starts afresh: keep them where only the site's operator can write, and back them up together.

A run goes: `reserve` its whole plan, then for each release one transaction that writes charge, release id and payload,
and only then the payload is sent; `confirm` when it has arrived; `close` at the end. A resend is the same bytes and
free. There are no refunds.

Which plans are admitted under a cap (epsilon, delta):
- A Renyi filter at one order. The order is chosen from the cap and the first plan alone, before any record is touched,
  as the one under which that plan fits most often, and then stays. From then on every plan must fit: the sum of the
  RDP at that order, in integers of 1e-12 rounded up, stays within what (epsilon, delta) leaves at that order, rounded
  down. A fixed order makes the bound hold for adaptively chosen runs without a union bound over orders (Feldman and
  Zrnic 2021). An open run counts with its whole plan, a closed one with what it released.
- Or a plan declared in advance: if nothing was ever released from the data set and the tight (PLD) epsilon of the plan
  is within the cap, it is admitted. From its first release it counts in full for ever, even if it stops early, and
  only parts of it may be released; since it does not fit the filter, no other plan is admitted after it. So either it
  alone runs and the PLD bound holds, or only the filter decides.
- Changing a cap is a new declaration: it is logged, and the order is chosen again at the next plan.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import math
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from prismfl.errors import BudgetError, LedgerError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import RELATIONS, Cost, Mechanism, Relation

VERSION = 1
SCALE = 10**12
"""RDP is added up in integers of 1 / SCALE."""

Rule = Literal["rdp", "pld", "uncapped"]

_BEYOND = 10**60  # stands for infinity in integers: above any budget
_FINGERPRINT = 8
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)  # the second where a damaged name or text reaches Python
_BUSY_SECONDS = 60.0
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,"
    " head BLOB NOT NULL)",
    "CREATE TABLE blobs (name TEXT PRIMARY KEY, data BLOB NOT NULL)",
)


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that may ever be spent on a data set."""

    epsilon: float
    delta: float
    unit: str = "record"
    relation: Relation = "add-remove"

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UserError(f"Expected the cap's {name} to be a number, got {value!r}.")
        if not 1e-6 <= self.epsilon < math.inf:
            raise UserError(f"Expected a cap of finite epsilon >= 1e-06, got {self.epsilon}.")
        if not 1e-100 <= self.delta < 1:
            raise UserError(f"Expected a cap with 1e-100 <= delta < 1, got {self.delta}.")
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise UserError(f"Expected a unit such as 'record', 'client' or a column name, got {self.unit!r}.")
        if self.relation not in RELATIONS:
            raise UserError(f"Expected a relation out of {', '.join(RELATIONS)}, got {self.relation!r}.")

    def describe(self) -> str:
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}, unit {self.unit}, {self.relation}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One link of the chain."""

    seq: int
    time: str
    kind: str
    body: Mapping[str, Any]


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
    """The balance of one data set. `used` is the part of the filter's budget that is held, None without a cap or
    before the first plan; above 1 after a plan that was admitted by its PLD epsilon."""

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
class _Run:
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
class _Dataset:
    id: str
    names: list[str]
    cap: Cap | None
    records: int
    digest: str
    order: int | None = None


@dataclass(slots=True)
class _State:
    """What the chain says so far; built by `apply` alone."""

    heads: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    datasets: dict[str, _Dataset] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)
    runs: dict[tuple[str, str], _Run] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)

    def resolve(self, dataset: str) -> str:
        while dataset in self.absorbed:
            dataset = self.absorbed[dataset]
        return dataset

    def dataset(self, dataset: str) -> _Dataset:
        found = self.datasets.get(self.resolve(dataset))
        if found is None:
            known = ", ".join(self.datasets) or "none"
            raise UserError(f"No data set {dataset!r} in the ledger (known: {known}).")
        return found

    def runs_on(self, dataset: str) -> list[_Run]:
        return [run for run in self.runs.values() if self.resolve(run.dataset) == dataset]

    def apply(self, entry: Entry, head: bytes) -> None:
        body = entry.body
        if entry.kind == "dataset":
            self.datasets[body["dataset"]] = _Dataset(
                body["dataset"], [body["name"]], _cap_from_json(body["cap"]), body["records"], body["digest"]
            )
            self.names[body["name"]] = body["dataset"]
        elif entry.kind == "records":
            self._apply_records(body)
        elif entry.kind == "cap":
            target = self.datasets[body["dataset"]]
            target.cap, target.order = _cap_from_json(body["cap"]), None
        elif entry.kind == "reserve":
            plan = Cost.from_json(body["plan"])
            zero = Cost.zero(plan.unit, plan.relation)
            self.runs[body["run"], body["dataset"]] = _Run(body["run"], body["dataset"], plan, body["rule"], zero)
            order = body["order"]
            self.datasets[body["dataset"]].order = None if order is None else account.ORDERS.index(order)
        elif entry.kind == "release":
            self._apply_release(entry)
        elif entry.kind == "confirm":
            self._apply_arrival(body["release"])
        elif entry.kind == "close":
            for run in self.runs.values():
                run.open = run.open and run.name != body["run"]
        elif entry.kind != "create" or body["version"] != VERSION:
            raise LedgerError(f"Entry {entry.seq} of the ledger was written by another version of prismfl.")
        self.entries.append(entry)
        self.heads.append(head)

    def _apply_records(self, body: Mapping[str, Any]) -> None:
        target = self.datasets[body["dataset"]]
        target.records, target.digest = body["records"], body["digest"]
        target.cap = _cap_from_json(body["cap"])
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


class Ledger:
    """See the module. Use `Ledger.open`; one object per process and thread."""

    def __init__(self, path: Path, db: sqlite3.Connection, secret: bytes) -> None:
        self.path = path
        self._db = db
        self._secret = secret
        self._state = _State()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True) -> Ledger:
        """Opens and verifies the ledger at `path`, or makes a new one where there is neither ledger nor anchor."""
        path = Path(path)
        if not create and not path.exists() and not _anchor_path(path).exists():
            raise UserError(f"No ledger at {path}.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                anchored = _anchor_path(path).exists()
                if anchored and not path.exists():
                    raise LedgerError(f"The ledger {path} is missing although its anchor exists; restore it.")
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
                try:
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute("PRAGMA synchronous = FULL")
                    ledger = cls(path, db, _secret_of(db, path, fresh=not anchored))
                    ledger._catch_up(first=True)
                    ledger._write_anchor()
                except BaseException:
                    db.close()
                    raise
        except OSError as error:
            raise LedgerError(f"The ledger {path} cannot be opened: {error.strerror}.") from error
        except _DAMAGE as error:
            raise _wrapped(path, error) from error
        return ledger

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()

    def shut(self) -> None:
        """Closes the file. (`close` closes a run.)"""
        self._db.close()

    # Data sets

    def dataset(self, name: str, *, records: Iterable[bytes], cap: Cap | None = None) -> str:
        """Declares a data set and returns its id. `records` are the bytes of each record, in any order; only keyed
        fingerprints of them are kept. Data that shares a name or a single record with a known data set is that data
        set: it has the same budget, and the new records are added to it; data that bridges several makes them one.
        A known data set keeps its cap: None accepts it, another one is refused (see `set_cap`)."""
        _check_name("data set", name)
        prints = {hmac.digest(self._secret, record, "sha256")[:_FINGERPRINT] for record in records}
        with self._transaction():
            state = self._state
            stored = {known: self._fingerprints(known) for known in state.datasets}
            hits = [
                known for known, old in stored.items() if state.names.get(name) == known or not prints.isdisjoint(old)
            ]
            if not hits:
                new = f"ds{sum(entry.kind == 'dataset' for entry in state.entries) + 1}"
                self._store_fingerprints(new, prints)
                body = {"dataset": new, "name": name, "cap": _cap_json(cap)}
                self._append("dataset", {**body, "records": len(prints), "digest": _digest(_packed(prints))})
                return new
            keeper, *others = hits
            kept = _merged_cap([state.datasets[hit] for hit in hits])
            if cap is not None and cap != kept:
                raise UserError(
                    f"Data set {name!r} is known to the ledger with {_cap_text(kept)}, not {_cap_text(cap)}; "
                    "the stored cap stays. Change it with set_cap."
                )
            union = prints.union(*(stored[hit] for hit in hits))
            if others or union != stored[keeper] or state.names.get(name) != keeper:
                self._store_fingerprints(keeper, union)
                for other in others:
                    self._db.execute("DELETE FROM blobs WHERE name = ?", (f"records/{other}",))
                body = {"dataset": keeper, "name": name, "cap": _cap_json(kept)}
                self._append(
                    "records", {**body, "absorbs": others, "records": len(union), "digest": _digest(_packed(union))}
                )
            return keeper

    def set_cap(self, dataset: str, cap: Cap | None) -> None:
        """Changes a cap, on the record. Runs that are under way keep what they reserved."""
        with self._transaction():
            target = self._state.dataset(dataset)
            for run in self._state.runs_on(target.id):
                if cap is not None and not run.held.is_zero:
                    _check_terms(run.held, cap)
            if cap != target.cap:
                self._append("cap", {"dataset": target.id, "cap": _cap_json(cap)})

    # Runs

    def reserve(self, run: str, dataset: str, plan: Cost) -> None:
        """Holds the whole plan of a run against the cap, before a record is touched. The same run and plan again is a
        no-op; a plan that does not fit raises BudgetError and changes nothing."""
        _check_name("run", run)
        with self._transaction():
            target = self._state.dataset(dataset)
            known = self._run(run, dataset)
            if known is not None:
                if known.plan != plan:
                    raise UserError(
                        f"Run {run!r} has reserved another plan ({known.plan.describe()}); start a new run."
                    )
                return
            rule, order = self._admit(run, target, plan)
            body = {"run": run, "dataset": target.id, "plan": plan.to_json(), "rule": rule}
            self._append("reserve", {**body, "order": None if order is None else account.ORDERS[order]})

    def release(
        self, run: str, dataset: str, release_id: str, cost: Cost, payload: bytes, *, arrived: Iterable[str] = ()
    ) -> None:
        """Charges a release and keeps its payload for sending, in one transaction. Send only after this returns. The
        same id with the same bytes is a no-op; with other bytes it is refused, since new noise is a new charge.
        `arrived` are earlier releases to confirm in passing, which spares them a wait for the disk of their own."""
        _check_name("release", release_id)
        with self._transaction():
            target = self._state.dataset(dataset)
            digest = _digest(payload)
            old = self._state.charges.get(release_id)
            if old is not None:
                same = (old.run, self._state.resolve(old.dataset), old.cost, old.digest) == (
                    run,
                    target.id,
                    cost,
                    digest,
                )
                if not same:
                    raise BudgetError(f"Release {release_id!r} is already in the ledger with other content.")
                return
            reserved = self._run(run, dataset)
            if reserved is None:
                raise BudgetError(f"Run {run!r} has reserved nothing on data set {target.id}; reserve its plan first.")
            if not reserved.open:
                raise BudgetError(f"Run {run!r} is closed; a new release needs a new run.")
            _check_within_plan(reserved, cost)
            self._db.execute("INSERT INTO blobs VALUES (?, ?)", (f"payload/{release_id}", payload))
            body = {"run": run, "dataset": target.id, "reserved": reserved.dataset, "release": release_id}
            passed = [earlier for earlier in arrived if self._drop_payload(earlier)]
            more = {"arrived": passed} if passed else {}
            self._append("release", {**body, "cost": cost.to_json(), "digest": digest, "size": len(payload), **more})

    def outbox(self, release_id: str) -> bytes | None:
        """The paid payload, for sending or sending again; None if it is unknown or was confirmed."""
        self._refresh()
        charge = self._state.charges.get(release_id)
        if charge is None or charge.confirmed:
            return None
        return self._blob(f"payload/{release_id}", charge.digest)

    def confirm(self, release_id: str) -> None:
        """The payload has arrived: its bytes are dropped, its digest stays."""
        with self._transaction():
            if self._drop_payload(release_id):
                self._append("confirm", {"release": release_id})

    def close(self, run: str) -> None:
        """Ends a run: from now on it counts with what it released (see the module for plans admitted by PLD)."""
        with self._transaction():
            mine = [known for known in self._state.runs.values() if known.name == run]
            if not mine:
                raise UserError(f"No run {run!r} in the ledger.")
            if any(known.open for known in mine):
                self._append("close", {"run": run})

    # Reading

    def charges(self, run: str | None = None, dataset: str | None = None) -> list[Charge]:
        """The charges in order, of one run and of one data set if given."""
        self._refresh()
        state = self._state
        wanted = None if dataset is None else state.dataset(dataset).id
        return [
            charge
            for charge in state.charges.values()
            if run in (None, charge.run) and wanted in (None, state.resolve(charge.dataset))
        ]

    def spent(self, dataset: str) -> Cost:
        """The sum of all charges on a data set."""
        self._refresh()
        target = self._state.dataset(dataset)
        sums = self._spent(target.id)
        if len(sums) > 1:
            units = ", ".join(f"{cost.unit} {cost.relation}" for cost in sums)
            raise UserError(f"Data set {target.id} was charged per {units}; such costs do not add.")
        if sums:
            return sums[0]
        return Cost.zero(target.cap.unit, target.cap.relation) if target.cap else Cost.zero()

    def status(self) -> list[DatasetStatus]:
        """The balance of every data set."""
        self._refresh()
        return [self._status(dataset) for dataset in self._state.datasets.values()]

    def history(self) -> list[Entry]:
        """Every entry of the chain."""
        self._refresh()
        return list(self._state.entries)

    def verify(self) -> int:
        """Reads everything again from the file and checks it; the number of entries, or LedgerError."""
        try:
            report = [row[0] for row in self._db.execute("PRAGMA integrity_check(1)")]
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error
        if report != ["ok"]:
            raise LedgerError(f"The ledger {self.path} is damaged: the database fails its integrity check.")
        self._state = _State()
        self._refresh()
        for dataset in self._state.datasets:
            self._fingerprints(dataset)
        for release, charge in self._state.charges.items():
            if not charge.confirmed:
                self._blob(f"payload/{release}", charge.digest)
        return len(self._state.entries)

    # Inside

    def _admit(self, run: str, target: _Dataset, plan: Cost) -> tuple[Rule, int | None]:
        """The rule under which a plan is admitted and the filter's order, or BudgetError."""
        if target.cap is None:
            return "uncapped", None
        cap = target.cap
        _check_terms(plan, cap)
        standing = [known.held for known in self._state.runs_on(target.id) if not known.held.is_zero]
        if plan.is_zero:
            return "rdp", target.order if standing else None
        if not plan.private:
            raise BudgetError(
                f"Refused: run {run!r} has no DP guarantee, data set {target.id} a cap of {cap.describe()}."
            )
        needs, held = _units(plan), _total(standing)
        order = target.order if standing and target.order is not None else _best_order(cap, needs=needs, held=held)
        if order is not None and held[order] + needs[order] <= _budget(cap, order):
            return "rdp", order
        # Refused unseen when RDP is far above the cap: composing an absurd plan by PLD could keep the site computing.
        hopeless = account.epsilon_rdp(plan, cap.delta) > 4 * cap.epsilon + 1
        if not standing and not hopeless and account.epsilon(plan, cap.delta) <= cap.epsilon:
            return "pld", order
        raise BudgetError(_refusal(run, target.id, cap, plan=plan, held=held))

    def _run(self, run: str, dataset: str) -> _Run | None:
        """The run's reservation on a data set, or on one that has become a part of it."""
        exact = self._state.runs.get((run, dataset))
        found = (known for known in self._state.runs_on(self._state.resolve(dataset)) if known.name == run)
        return exact or next(found, None)

    def _drop_payload(self, release_id: str) -> bool:
        """Whether there was a payload to drop: a release is confirmed once."""
        charge = self._state.charges.get(release_id)
        if charge is None:
            raise UserError(f"No release {release_id!r} in the ledger.")
        if not charge.confirmed:
            self._db.execute("DELETE FROM blobs WHERE name = ?", (f"payload/{release_id}",))
        return not charge.confirmed

    def _spent(self, dataset: str) -> tuple[Cost, ...]:
        sums: dict[tuple[str, str], Cost] = {}
        for run in self._state.runs_on(dataset):
            key, cost = (run.charged.unit, run.charged.relation), run.charged
            if cost.is_zero:
                continue
            old = sums.get(key)
            if old is not None and len({1, len(old.branches), len(cost.branches)}) > 2:
                old, cost = old.sequential(), cost.sequential()
            sums[key] = cost if old is None else old + cost
        return tuple(sums.values())

    def _status(self, dataset: _Dataset) -> DatasetStatus:
        runs = self._state.runs_on(dataset.id)
        used = None
        if dataset.cap is not None and dataset.order is not None:
            held = _total([run.held for run in runs if not run.held.is_zero])[dataset.order]
            used = held / max(1, _budget(dataset.cap, dataset.order))
        charges = [c for c in self._state.charges.values() if self._state.resolve(c.dataset) == dataset.id]
        return DatasetStatus(
            dataset=dataset.id,
            names=tuple(dataset.names),
            records=dataset.records,
            cap=dataset.cap,
            spent=self._spent(dataset.id),
            used=used,
            open_runs=tuple(run.name for run in runs if run.open),
            closed_runs=tuple(run.name for run in runs if not run.open),
            releases=len(charges),
            unconfirmed=sum(not charge.confirmed for charge in charges),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One BEGIN IMMEDIATE .. COMMIT around up-to-date state; the anchor follows the commit. The state changes only
        by reading back what was committed."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up()
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._catch_up()
            with _locked(self.path):
                self._write_anchor()
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error
        except OSError as error:
            raise LedgerError(f"The ledger {self.path} cannot be written: {error.strerror}.") from error

    def _refresh(self) -> None:
        try:
            self._catch_up()
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error

    def _append(self, kind: str, body: Mapping[str, Any]) -> None:
        seq = len(self._state.heads) + 1
        time, text = datetime.now(UTC).isoformat(timespec="milliseconds"), json.dumps(body, sort_keys=True)
        previous = self._state.heads[-1] if self._state.heads else b""
        head = _link(self._secret, previous, (seq, time, kind, text))
        self._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (seq, time, kind, text, head))

    def _catch_up(self, *, first: bool = False) -> None:
        """Verifies and applies the entries that are not yet in the state, then compares with the anchor. The anchor is
        read first: another process may commit in between, and then the ledger is rightly ahead."""
        anchor = _read_anchor(self.path)
        state = self._state
        with closing(
            self._db.execute(
                "SELECT seq, time, kind, body, head FROM entries WHERE seq > ? ORDER BY seq", (len(state.heads),)
            )
        ) as rows:
            for seq, time, kind, text, head in rows:
                previous = state.heads[-1] if state.heads else b""
                expected = _link(self._secret, previous, (seq, time, kind, text))
                if (
                    seq != len(state.heads) + 1
                    or not isinstance(head, bytes)
                    or not hmac.compare_digest(head, expected)
                ):
                    raise LedgerError(
                        f"The ledger {self.path} is damaged: entry {len(state.heads) + 1} does not verify."
                    )
                state.apply(Entry(seq, time, kind, json.loads(text)), head)
        if anchor is None:
            if not (first and len(state.heads) == 1):
                raise LedgerError(
                    f"The anchor of the ledger {self.path} is missing; restore {_anchor_path(self.path)}."
                )
            return
        seq, head = anchor
        if seq > len(state.heads):
            raise LedgerError(
                f"The ledger {self.path} is older than its anchor ({len(state.heads)} of {seq} entries); restore it."
            )
        if state.heads[seq - 1] != head:
            raise LedgerError(f"The ledger {self.path} is not the one its anchor belongs to; restore it.")

    def _write_anchor(self) -> None:
        """Moves the anchor forward; the caller holds the lock. Atomic: a crash leaves the old one or the new one."""
        anchor = _read_anchor(self.path)
        seq = len(self._state.heads)
        if anchor is not None and anchor[0] >= seq:
            return
        final = _anchor_path(self.path)
        draft = final.with_name(final.name + ".new")
        text = json.dumps({"version": VERSION, "seq": seq, "head": self._state.heads[-1].hex()}) + "\n"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, final)
        if anchor is not None:
            return  # a power cut that undoes the renaming leaves the anchor before, which the ledger may be ahead of
        directory = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _blob(self, name: str, digest: str) -> bytes:
        try:
            row = self._db.execute("SELECT data FROM blobs WHERE name = ?", (name,)).fetchone()
        except _DAMAGE as error:
            raise _wrapped(self.path, error) from error
        if row is None or not isinstance(row[0], bytes) or _digest(row[0]) != digest:
            raise LedgerError(f"The ledger {self.path} is damaged: the content of {name} does not verify.")
        return row[0]

    def _fingerprints(self, dataset: str) -> set[bytes]:
        packed = self._blob(f"records/{dataset}", self._state.datasets[dataset].digest)
        return {packed[k : k + _FINGERPRINT] for k in range(0, len(packed), _FINGERPRINT)}

    def _store_fingerprints(self, dataset: str, prints: set[bytes]) -> None:
        self._db.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", (f"records/{dataset}", _packed(prints)))


def _anchor_path(path: Path) -> Path:
    return path.with_name(path.name + ".anchor")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Among processes: one at a time opens the ledger or moves the anchor. The kernel drops the lock of a dead one."""
    handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _secret_of(db: sqlite3.Connection, path: Path, *, fresh: bool) -> bytes:
    """The ledger's key; writes tables, key and first entry into an empty file where no anchor forbids it."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and fresh:
        secret = secrets.token_bytes(32)
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = json.dumps({"version": VERSION}, sort_keys=True)
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute("INSERT INTO meta VALUES ('secret', ?)", (secret,))
        head = _link(secret, b"", (1, time, "create", text))
        db.execute("INSERT INTO entries VALUES (1, ?, 'create', ?, ?)", (time, text, head))
        db.execute("COMMIT")
        return secret
    row = db.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone() if "meta" in tables else None
    if row is None or not isinstance(row[0], bytes):
        raise LedgerError(f"The file {path} is not the ledger its anchor belongs to; restore it.")
    return row[0]


def _read_anchor(path: Path) -> tuple[int, bytes] | None:
    try:
        data = json.loads(_anchor_path(path).read_text(encoding="ascii"))
        seq, head = data["seq"], bytes.fromhex(data["head"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"The anchor {_anchor_path(path)} is damaged; restore it.") from error
    if not isinstance(seq, int) or seq < 1:
        raise LedgerError(f"The anchor {_anchor_path(path)} is damaged; restore it.")
    return seq, head


def _link(secret: bytes, previous: bytes, fields: tuple[Any, Any, Any, Any]) -> bytes:
    return hmac.digest(secret, previous + repr(fields).encode(), "sha256")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _packed(prints: set[bytes]) -> bytes:
    return b"".join(sorted(prints))


def _wrapped(path: Path, error: Exception) -> LedgerError:
    """In SQLite's own words ('database or disk is full'), without the cell that some of them quote."""
    reason = str(error).partition(" with text ")[0] if isinstance(error, sqlite3.Error) else "its text is damaged"
    return LedgerError(f"The ledger {path} cannot be used: {reason}.")


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > 500 or not name.isprintable():
        raise UserError(f"Expected a printable {what} name of 1 to 500 characters, got {name!r:.40}.")


def _cap_json(cap: Cap | None) -> dict[str, Any] | None:
    return None if cap is None else asdict(cap)


def _cap_from_json(data: Mapping[str, Any] | None) -> Cap | None:
    return None if data is None else Cap(**data)


def _cap_text(cap: Cap | None) -> str:
    return "no cap" if cap is None else f"a cap of {cap.describe()}"


def _merged_cap(datasets: list[_Dataset]) -> Cap | None:
    """The strictest cap of data sets that turn out to be one."""
    caps = [dataset.cap for dataset in datasets if dataset.cap is not None]
    if len({(cap.unit, cap.relation) for cap in caps}) > 1:
        names = ", ".join(dataset.id for dataset in datasets)
        raise UserError(f"The data bridges data sets {names} whose caps protect different units; give them one unit.")
    return min(caps, key=lambda cap: (cap.epsilon, cap.delta)) if caps else None


def _check_terms(cost: Cost, cap: Cap) -> None:
    if (cost.unit, cost.relation) != (cap.unit, cap.relation):
        raise BudgetError(
            f"Refused: a cost per {cost.unit} under {cost.relation} cannot be paid from a cap per {cap.unit} under "
            f"{cap.relation}; plan the run for the cap's unit and relation."
        )


@lru_cache(maxsize=1024)
def _mechanism_units(mechanism: Mechanism, relation: Relation) -> tuple[int, ...]:
    """One use of a mechanism, rounded up per order; no use is free. The relative 1e-12 is for the floats before."""
    curve = account.mechanism_rdp(mechanism, relation)
    return tuple(math.floor(value * (1 + 1e-12) * SCALE) + 1 if value < math.inf else _BEYOND for value in curve)


def _units(cost: Cost) -> list[int]:
    """RDP per order in integers. Each use of a mechanism is rounded up by itself, so the units of a sum are the sum of
    the units and a plan is used up exactly by its parts."""
    if not cost.private:
        return [_BEYOND] * len(account.ORDERS)
    totals = []
    for branch in set(cost.branches):
        total = [0] * len(account.ORDERS)
        for mechanism, times in branch:
            units = _mechanism_units(mechanism, cost.relation)
            total = [a + times * b for a, b in zip(total, units, strict=True)]
        totals.append(total)
    return [max(column) for column in zip(*totals, strict=True)]


def _total(costs: list[Cost]) -> list[int]:
    total = [0] * len(account.ORDERS)
    for cost in costs:
        total = [a + b for a, b in zip(total, _units(cost), strict=True)]
    return total


def _budget(cap: Cap, order: int) -> int:
    return max(0, math.floor(account.rdp_room(account.ORDERS[order], cap.epsilon, cap.delta) * SCALE))


def _best_order(cap: Cap, *, needs: list[int], held: list[int]) -> int:
    """The order under which the plan fits most often into what is left."""
    room = [_budget(cap, k) - held[k] for k in range(len(needs))]
    return max(range(len(needs)), key=lambda k: room[k] / max(1, needs[k]))


def _check_within_plan(run: _Run, cost: Cost) -> None:
    """A part of the plan, or (under the filter, which only knows RDP) no more than its RDP at any order."""
    if (cost.unit, cost.relation) != (run.plan.unit, run.plan.relation):
        raise BudgetError(
            f"Run {run.name!r} has reserved costs per {run.plan.unit} under {run.plan.relation}, "
            f"not per {cost.unit} under {cost.relation}."
        )
    total = run.charged + cost
    if run.plan.covers(total):
        return
    if (
        run.rule != "pld"
        and total.private
        and all(a <= b for a, b in zip(_units(total), _units(run.plan), strict=True))
    ):
        return
    raise BudgetError(
        f"Refused: run {run.name!r} would have spent {total.describe()}, its plan is {run.plan.describe()}; "
        "a longer run needs a new plan."
    )


def _refusal(run: str, dataset: str, cap: Cap, *, plan: Cost, held: list[int]) -> str:
    asked = account.epsilon_rdp(plan, cap.delta)
    offers = [
        value / SCALE - account.rdp_room(order, 0.0, cap.delta)
        for order, value in zip(account.ORDERS, held, strict=True)
    ]
    spent = max(0.0, min(offers)) if any(held) else 0.0
    spent = math.inf if spent * SCALE >= _BEYOND else spent
    return (
        f"Refused: run {run!r} asks for epsilon {asked:.4g} (RDP); data set {dataset} has {spent:.4g} spent or "
        f"reserved of its cap of {cap.describe()}. More noise, fewer steps or a higher cap would do."
    )
