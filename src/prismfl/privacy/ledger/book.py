"""The site's ledger: what was promised to its data sets, what was spent, and the bytes that were paid for.

One SQLite file per site, durable across runs. Every fact is an entry of an append-only chain (`chain`); all balances
are computed from the chain (`balances`), so nothing else can be edited. A file that is missing, older than its anchor,
or does not verify is refused, never replaced by a fresh one. Whoever deletes both file and anchor starts afresh: keep
them where only the site's operator can write, and back them up together.

A run goes: `reserve` its whole plan; then for each release `charge` before a record is touched, and one transaction
(`fill`) that writes the payload and what the site remembers of it; only then the payload is sent; `confirm` when it
has arrived; `close` at the end. A resend is the same bytes and free. There are no refunds: what fails after its charge
stays charged and leaves nothing. A release that is held for a person counts for later rounds only once it is approved.
Which plans a cap admits is in `admission`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import Any

from prismfl.errors import BudgetError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import admission
from prismfl.privacy.ledger.admission import Cap, Rule
from prismfl.privacy.ledger.balances import Balances, Charge, DatasetStatus, Known
from prismfl.privacy.ledger.chain import Chain, Entry, digest_of
from prismfl.sources import DEPLOYMENT, NO_PROTECTION

_FINGERPRINT = 8


class Ledger:
    """See the module. Use `Ledger.open`; one object per process and thread."""

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, elsewhere: bool = True, lasting: bool = True
    ) -> None:
        self._state = Balances()
        self._chain = Chain.open(
            path,
            create=create,
            reader=lambda entry: self._state.apply(entry),
            elsewhere=elsewhere,
            lasting=lasting,
        )
        self.path, self.lasting = self._chain.path, lasting

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, create: bool = True, elsewhere: bool = True, lasting: bool = True
    ) -> Ledger:
        """Opens and verifies the ledger at `path`, or makes a new one where there is neither ledger nor anchor. A head
        that is kept in a second place is compared as well, unless not `elsewhere` (see `care`). One that is not
        `lasting` (a simulation's own) does not wait for the disk."""
        return cls(path, create=create, elsewhere=elsewhere, lasting=lasting)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()

    def shut(self) -> None:
        """Closes the file until it is used again. (`close` closes a run.) Before a fork every ledger is shut: no
        connection may cross it."""
        self._chain.shut()

    def shrink(self) -> None:
        """Gives the room of payloads and memories that were dropped back to the disk."""
        self._chain.shrink()

    # Data sets

    def dataset(
        self, name: str, *, records: Iterable[bytes], units: Iterable[bytes] = (), cap: Cap | None = None
    ) -> str:
        """Declares a data set and returns its id. `records` are the bytes of each record, `units` those of each person
        (or other unit), in any order; only keyed fingerprints of them are kept. Data that shares a name, a record or a
        unit with a known data set is that data set: it has the same budget, and what is new is added to it; data that
        bridges several makes them one. A known data set keeps its cap: None accepts it, another one is refused (see
        `set_cap`)."""
        _check_name("data set", name)
        prints = {self._chain.fingerprint(record)[:_FINGERPRINT] for record in records}
        prints |= {self._chain.fingerprint(b"unit " + unit)[:_FINGERPRINT] for unit in set(units)}
        if self._known(name, prints, cap):
            return self._state.names[name]
        with self._chain.transaction():
            state = self._state
            stored = {known: self._fingerprints(known) for known in state.datasets}
            hits = [
                known for known, old in stored.items() if state.names.get(name) == known or not prints.isdisjoint(old)
            ]
            if not hits:
                new = f"ds{sum(entry.kind == 'dataset' for entry in state.entries) + 1}"
                self._store_fingerprints(new, prints)
                body = {"dataset": new, "name": name, "cap": admission.cap_json(cap)}
                self._chain.append("dataset", {**body, "records": len(prints), "digest": digest_of(_packed(prints))})
                return new
            keeper, *others = hits
            kept = admission.strictest({hit: state.datasets[hit].cap for hit in hits})
            if cap is not None and cap != kept:
                known, given = admission.cap_text(kept), admission.cap_text(cap)
                raise UserError(
                    f"Data set {name!r} is known to the ledger with {known}, not {given}; the stored cap stays. "
                    "Change it with set_cap."
                )
            union = prints.union(*(stored[hit] for hit in hits))
            if others or union != stored[keeper] or state.names.get(name) != keeper:
                self._store_fingerprints(keeper, union)
                for other in others:
                    self._chain.drop(f"records/{other}")
                body = {"dataset": keeper, "name": name, "cap": admission.cap_json(kept)}
                self._chain.append(
                    "records", {**body, "absorbs": others, "records": len(union), "digest": digest_of(_packed(union))}
                )
            return keeper

    def _known(self, name: str, prints: set[bytes], cap: Cap | None) -> bool:
        """Whether nothing is new: the data set of this name holds all of it, and no other any."""
        self._chain.refresh()
        own = self._state.names.get(name)
        if own is None or cap not in (None, self._state.datasets[own].cap):
            return False
        return prints <= self._fingerprints(own)

    def set_cap(self, dataset: str, cap: Cap | None, *, by_hand: bool = False) -> Cap | None:
        """Changes a cap, on the record, and gives the one that holds: never more than the keeper last set `by_hand`.
        Runs that are under way keep what they reserved. After entries were lost, only a cap that was set by hand lets
        anything be spent."""
        with self._chain.transaction():
            target = self._state.dataset(dataset)
            if not by_hand:
                cap = admission.within(cap, target.by_hand)
            if cap is not None:
                for held in self._state.standing(target.id):
                    admission.check_terms(held, cap)
            decided = by_hand and (cap != target.by_hand or self._state.closed_because(target.id) is not None)
            if cap != target.cap or decided:
                hand = {"by_hand": True} if by_hand else {}
                self._chain.append("cap", {"dataset": target.id, "cap": admission.cap_json(cap), **hand})
            return cap

    def resolve(self, dataset: str) -> str:
        """The id under which a data set is known now: it may have become a part of another."""
        self._chain.refresh()
        return self._state.dataset(dataset).id

    def cap(self, dataset: str) -> Cap | None:
        """The cap of a data set."""
        self._chain.refresh()
        return self._state.dataset(dataset).cap

    # Runs

    def reserve(self, run: str, dataset: str, plan: Cost) -> None:
        """Holds the whole plan of a run against the cap, before a record is touched. The same run and plan again is a
        no-op; a plan that does not fit raises BudgetError and changes nothing."""
        _check_name("run", run)
        with self._chain.transaction():
            target = self._state.dataset(dataset)
            known = self._state.run(run, dataset)
            if known is not None:
                if known.plan != plan:
                    raise UserError(
                        f"Run {run!r} has reserved another plan ({known.plan.describe()}); start a new run."
                    )
                return
            self._refuse_closed(target)
            rule, order = self._admit(run, target, plan)
            body = {"run": run, "dataset": target.id, "plan": plan.to_json(), "rule": rule}
            self._chain.append("reserve", {**body, "order": None if order is None else account.ORDERS[order]})

    def charge(
        self,
        run: str,
        dataset: str,
        release_id: str,
        cost: Cost,
        *,
        part: str = "",
        noise: str = "",
        again: bool = False,
        arrived: Iterable[str] = (),
    ) -> None:
        """Charges a release that is about to be computed. Compute only after this returns, then `fill`.

        A run on several disjoint `part`s of a data set (simulated sites) costs a record what its own part costs. What
        was charged before and came to nothing is refused for ever, unless the caller may try `again` (a simulation,
        from which nothing has left). `noise` says where the noise comes from. `arrived` are earlier releases to confirm
        in passing, which spares them a wait for the disk of their own."""
        _check_name("release", release_id)
        with self._chain.transaction():
            old = self._state.charges.get(release_id)
            if old is not None:
                same = (old.run, self._state.resolve(old.dataset), old.cost, old.status)
                if again and same == (run, self._state.resolve(dataset), cost, "charged"):
                    return
                raise BudgetError(f"Release {release_id!r} was charged before and is {old.status}; that is final.")
            self._append_charge(
                "charge", run, dataset, release_id, cost=cost, part=part, more={"noise": noise}, arrived=arrived
            )

    def fill(
        self, release_id: str, payload: bytes, memory: bytes = b"", *, held: bool = False, keep: bool = True
    ) -> bytes:
        """Keeps the payload of a charged release for sending, and what the site remembers of it, in one transaction.
        Send only what this returns: of two who computed the same release, both send the first. A `held` release
        waits for `approve` or `deny`. Without `keep` (a simulation, that can make the same bytes again) only the
        payload's digest is kept."""
        with self._chain.transaction():
            charge = self._state.charge(release_id)
            if charge.status != "charged":
                if charge.status in ("made", "held") and not charge.confirmed:
                    return self._chain.blob(f"payload/{release_id}", charge.digest)
                raise BudgetError(f"Release {release_id!r} is {charge.status}; that is final.")
            if keep:
                self._chain.put(f"payload/{release_id}", payload)
            if memory:
                self._chain.put(f"memory/{release_id}", memory)
            body = {"release": release_id, "digest": digest_of(payload), "size": len(payload), "held": held}
            made = {**body, "memory": digest_of(memory) if memory else None}
            self._chain.append("made", made if keep else {**made, "kept": False})
            for earlier in self._state.outlived(release_id):
                self._chain.drop(f"memory/{earlier}")
        return payload

    def approve(self, release_id: str, told: Mapping[str, Any] = MappingProxyType({})) -> None:
        """A person lets a held release go; `told` is what the entry says of it besides."""
        self._decide(release_id, "approve", "made", told)

    def deny(self, release_id: str, told: Mapping[str, Any] = MappingProxyType({})) -> None:
        """A person keeps a held release back: it stays charged, and nothing of it is kept or enters anything later."""
        self._decide(release_id, "deny", "denied", told)

    def _decide(self, release_id: str, kind: str, after: str, told: Mapping[str, Any]) -> None:
        with self._chain.transaction():
            charge = self._state.charge(release_id)
            if charge.status == after:
                return
            if charge.status != "held":
                raise UserError(f"Release {release_id!r} is {charge.status}, not held; that stands.")
            if kind == "deny":
                self._chain.drop(f"payload/{release_id}")
                self._chain.drop(f"memory/{release_id}")
            self._chain.append(kind, {**told, "release": release_id})

    def release(
        self, run: str, dataset: str, release_id: str, cost: Cost, payload: bytes, *, arrived: Iterable[str] = ()
    ) -> None:
        """`charge` and `fill` in one transaction, for what costs the data nothing to compute. The same id with the
        same bytes is a no-op; with other bytes it is refused, since new noise is a new charge."""
        _check_name("release", release_id)
        with self._chain.transaction():
            digest = digest_of(payload)
            old = self._state.charges.get(release_id)
            if old is not None:
                target = self._state.dataset(dataset)
                known = (old.run, self._state.resolve(old.dataset), old.cost, old.digest)
                if known != (run, target.id, cost, digest):
                    raise BudgetError(f"Release {release_id!r} is already in the ledger with other content.")
                return
            self._chain.put(f"payload/{release_id}", payload)
            more = {"digest": digest, "size": len(payload)}
            self._append_charge("release", run, dataset, release_id, cost=cost, part="", more=more, arrived=arrived)

    def _append_charge(
        self,
        kind: str,
        run: str,
        dataset: str,
        release_id: str,
        *,
        cost: Cost,
        part: str,
        more: dict[str, Any],
        arrived: Iterable[str],
    ) -> None:
        """The entry of a charge, after every check. Inside a transaction."""
        target = self._state.dataset(dataset)
        reserved = self._state.run(run, dataset)
        if reserved is None:
            raise BudgetError(f"Run {run!r} has reserved nothing on data set {target.id}; reserve its plan first.")
        if not reserved.open:
            raise BudgetError(f"Run {run!r} is closed; a new release needs a new run.")
        self._refuse_closed(target)
        charged = reserved.charged_on(part)
        admission.check_within_plan(run, plan=reserved.plan, rule=reserved.rule, charged=charged, cost=cost)
        self._still_within_cap(run, target)
        passed = [earlier for earlier in arrived if self._drop_payload(earlier)]
        body = {"run": run, "dataset": target.id, "reserved": reserved.dataset, "release": release_id, "part": part}
        more = more | ({"arrived": passed} if passed else {})
        self._chain.append(kind, {**body, **more, "cost": cost.to_json()})

    def remembered(self, run: str, site: str, *, before: int) -> bytes | None:
        """What a site remembers of its last release of a run before round `before`; nothing of one that was held or
        denied."""
        self._chain.refresh()
        for release, charge in reversed(self._state.releases_of(run, site)):
            if int(release.rsplit("/", 1)[1]) < before and charge.status == "made" and charge.memory is not None:
                return self._chain.blob(f"memory/{release}", charge.memory)
        return None

    def status_of(self, release_id: str) -> str | None:
        """ "charged", "made", "held" or "denied"; None where there is no such release."""
        self._chain.refresh()
        charge = self._state.charges.get(release_id)
        return None if charge is None else charge.status

    def outbox(self, release_id: str) -> bytes | None:
        """The paid payload, for sending or sending again; None if there is none, or it was confirmed."""
        self._chain.refresh()
        charge = self._state.charges.get(release_id)
        if charge is None or charge.confirmed or charge.status not in ("made", "held"):
            return None
        return self._chain.blob(f"payload/{release_id}", charge.digest)

    def made_again(self, release_id: str, payload: bytes) -> bytes:
        """The payload of a release that was made and not kept, if these are the same bytes: for free."""
        self._chain.refresh()
        charge = self._state.charge(release_id)
        if charge.status != "made" or charge.digest != digest_of(payload):
            raise BudgetError(f"Release {release_id!r} is {charge.status} with other content; that is final.")
        return payload

    def confirm(self, *release_ids: str) -> None:
        """Payloads have arrived: their bytes are dropped, their digests stay."""
        with self._chain.transaction():
            for release_id in release_ids:
                if self._drop_payload(release_id):
                    self._chain.append("confirm", {"release": release_id})

    def waiting(self, run: str, site: str, *, before: int) -> list[str]:
        """A site's releases of rounds before `before` whose bytes are still kept."""
        self._chain.refresh()
        found = self._state.releases_of(run, site)
        return [name for name, c in found if not c.confirmed and int(name.rsplit("/", 1)[1]) < before]

    def charged(self, run: str) -> dict[str, Cost]:
        """What a run was charged on each part of the data; a part that released nothing is not named."""
        self._chain.refresh()
        found: dict[str, Cost] = {}
        for reserved in self._state.runs.values():
            for part, cost in reserved.parts.items() if reserved.name == run else ():
                found[part] = found[part] + cost if part in found else cost
        return found

    def close(self, run: str, *, forget: bool = False) -> None:
        """Ends a run: from now on it counts with what it released (see the module for plans admitted by PLD). `forget`
        throws away what the site remembers of it."""
        with self._chain.transaction():
            mine = [known for known in self._state.runs.values() if known.name == run]
            if not mine:
                raise UserError(f"No run {run!r} in the ledger.")
            if any(known.open for known in mine):
                for release in self._state.releases_with_memory(run) if forget else ():
                    self._chain.drop(f"memory/{release}")
                self._chain.append("close", {"run": run, **({"forget": True} if forget else {})})

    def expire(self, *, hours: float, keep: str) -> list[str]:
        """Closes every open run but `keep` that has reserved or released nothing for so many hours: what it holds and
        has not spent is free again. Returns their names."""
        before = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="milliseconds")
        self._chain.refresh()
        runs = [run for run in self._state.runs.values() if run.open and run.name != keep]
        gone = sorted({run.name for run in runs} - {run.name for run in runs if run.last > before})
        for name in gone:
            self.close(name, forget=True)
        return gone

    # Reading

    def charges(self, run: str | None = None, dataset: str | None = None) -> list[Charge]:
        """The charges in order, of one run and of one data set if given."""
        self._chain.refresh()
        state = self._state
        found = state.charges.values() if dataset is None else state.charges_on(state.dataset(dataset).id)
        return [charge for charge in found if run in (None, charge.run)]

    def spent(self, dataset: str) -> Cost:
        """The sum of all charges on a data set."""
        self._chain.refresh()
        target = self._state.dataset(dataset)
        sums = self._state.spent(target.id)
        if len(sums) > 1:
            units = ", ".join(f"{cost.unit} {cost.relation}" for cost in sums)
            raise UserError(f"Data set {target.id} was charged per {units}; such costs do not add.")
        if sums:
            return sums[0]
        return Cost.zero(target.cap.unit, target.cap.relation) if target.cap else Cost.zero()

    def held(self, dataset: str) -> list[Cost]:
        """What runs hold of a data set's budget: an open run its whole plan, a closed one what it released."""
        self._chain.refresh()
        return self._state.standing(self._state.dataset(dataset).id)

    def total_so_far(self, dataset: str, delta: float) -> dict[str, Any]:
        """What a data set has paid over all its releases, in plain values: epsilon None means no guarantee."""
        charges, sums = self.charges(dataset=dataset), self._state.spent(self.resolve(dataset))
        epsilons = {f"{cost.unit}, {cost.relation}": account.epsilon(cost, delta) for cost in sums}
        finite = {words: None if math.isinf(value) else value for words, value in epsilons.items()}
        seeded = sum(charge.noise not in ("", DEPLOYMENT) for charge in charges)
        found: dict[str, Any] = {"releases": len(charges), "epsilon": None, "delta": delta, "by_unit": finite}
        if len(finite) == 1:
            found["epsilon"] = next(iter(finite.values()))
        return found | ({"seeded_releases": seeded, "seeded": NO_PROTECTION} if seeded else {})

    def status(self) -> list[DatasetStatus]:
        """The balance of every data set."""
        self._chain.refresh()
        return [self._state.status(dataset) for dataset in self._state.datasets.values()]

    def history(self) -> list[Entry]:
        """Every entry of the chain."""
        self._chain.refresh()
        return list(self._state.entries)

    def verify(self) -> int:
        """Reads everything again from the file and checks it; the number of entries, or LedgerError."""
        self._chain.check()
        self._state = Balances()
        self._chain.read_again()
        for dataset in self._state.datasets:
            self._fingerprints(dataset)
        for release, charge in self._state.charges.items():
            if not charge.confirmed and charge.status in ("made", "held"):
                self._chain.blob(f"payload/{release}", charge.digest)
        return len(self._state.entries)

    # Care

    @property
    def chain(self) -> Chain:
        """The file itself, for what is done with it as a whole (`care`)."""
        return self._chain

    def note(self, kind: str, body: dict[str, Any]) -> None:
        """An entry about the ledger as a whole: that it was moved or restored."""
        with self._chain.transaction():
            self._chain.append(kind, body)

    # Inside

    def _refuse_closed(self, target: Known) -> None:
        why = self._state.closed_because(target.id)
        if why is not None:
            raise BudgetError(f"Refused: {why}")

    def _admit(self, run: str, target: Known, plan: Cost) -> tuple[Rule, int | None]:
        standing, declared = self._state.standing(target.id), self._state.declared(target.id)
        return admission.admit(
            run, target.id, plan=plan, cap=target.cap, order=target.order, standing=standing, declared=declared
        )

    def _still_within_cap(self, run: str, target: Known) -> None:
        """Data that turned out to be one data set after their runs were admitted may be over its cap together."""
        joined = len({known.dataset for known in self._state.runs_on(target.id)}) > 1
        if not joined or target.cap is None:
            return
        if not admission.holds(target.cap, order=target.order, standing=self._state.standing(target.id)):
            raise BudgetError(
                f"Refused: run {run!r} was admitted on data that is part of data set {target.id} now, whose runs "
                f"together are over its cap of {target.cap.describe()}."
            )

    def _drop_payload(self, release_id: str) -> bool:
        """Whether there was a payload to drop: a release is confirmed once."""
        charge = self._state.charges.get(release_id)
        if charge is None:
            raise UserError(f"No release {release_id!r} in the ledger.")
        if charge.status != "made":
            return False
        if not charge.confirmed:
            self._chain.drop(f"payload/{release_id}")
        return not charge.confirmed

    def _fingerprints(self, dataset: str) -> set[bytes]:
        packed = self._chain.blob(f"records/{dataset}", self._state.datasets[dataset].digest)
        return {packed[k : k + _FINGERPRINT] for k in range(0, len(packed), _FINGERPRINT)}

    def _store_fingerprints(self, dataset: str, prints: set[bytes]) -> None:
        self._chain.put(f"records/{dataset}", _packed(prints), anew=True)


def _packed(prints: set[bytes]) -> bytes:
    return b"".join(sorted(prints))


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > 500 or not name.isprintable():
        raise UserError(f"Expected a printable {what} name of 1 to 500 characters, got {name!r:.40}.")
