"""One round, seen from a site and from the server. Transports call these functions and only move bytes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.hub import OpenedSum, Opening, PrivateShare, PrivateSum
from prismfl.core.job import Job
from prismfl.core.method import Folding, OwnSite, Site, State
from prismfl.core.payloads import Items, Payload, Statistics, SyntheticSet, decode, encode
from prismfl.core.records import Records
from prismfl.core.release import Release, make_release
from prismfl.errors import BoundaryError, BudgetError, LedgerError, WireError
from prismfl.kernels.parts import MEMORY
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.shares import Rules
from prismfl.rng import Key
from prismfl.sources import DEPLOYMENT, SIMULATION

WIDTHS = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
HEADER = 512  # bytes that describe a tensor, at most
ROOM = 256 * 1024 * 1024
"""Bytes of a round's releases that a server holds. Of more than that, a method that folds takes each in and lets it go;
other methods read them again from where they are kept."""
MASKED = "masked"  # the one item that leaves in a secure sum


@dataclass
class Host:
    """A site as its own machine sees it: records, ledger, and where its noise comes from.

    `part` names one of several disjoint parts of a data set (simulated sites on one ledger). `folder` is for secrets
    of its own and for locks. A site that is `deployed` takes its noise from the operating system. Where `final`, a
    release that was charged and came to nothing is never tried again: that it failed is all that anybody learns. A
    simulated site need not `keep` what it sent: asked again, it makes the same bytes from the same seed. A private step
    takes at most `step_memory` bytes.
    """

    name: str
    records: Callable[[], Records] = field(repr=False)
    ledger: Ledger
    dataset: str
    folder: Path
    part: str = ""
    deployed: bool = False
    allow_exact: bool = True
    final: bool = False
    held: bool = False
    reference: bool = False
    keep: bool = True
    step_memory: int = MEMORY

    def __post_init__(self) -> None:
        if self.deployed and not self.keep:
            raise BoundaryError("Noise of the operating system is drawn once: what was made with it is kept.")

    def noise_key(self, job: Job, round: int) -> Key:
        """Where a round's noise begins: the operating system's entropy if deployed, otherwise the job's seed."""
        return Key.from_os() if self.deployed else job.simulated_noise(self.name, round)

    def noise_source(self) -> str:
        """Where the noise comes from, in words."""
        return DEPLOYMENT if self.deployed else SIMULATION

    def memory(self, job: Job, round: int) -> dict[str, Payload]:
        """What this site remembers of the last round before `round` that it took part in. It never travels."""
        raw = self.ledger.remembered(job.run, self.name, before=round)
        return {} if raw is None else decode(raw)[0]

    @contextmanager
    def computing(self, release_id: str) -> Iterator[None]:
        """One process at a time computes a release; another that is asked for it waits for the first."""
        name = hashlib.sha256(release_id.encode()).hexdigest()[:32]
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@dataclass
class Hub:
    """The server as keeper of a client-level guarantee: a ledger of its own, unit = client."""

    ledger: Ledger
    dataset: str
    deployed: bool = False

    def noise_key(self, job: Job, round: int) -> Key:
        """Where a round's noise begins: the operating system's entropy if deployed, otherwise the job's seed."""
        return Key.from_os() if self.deployed else job.simulated_noise("hub", round)


@dataclass(frozen=True)
class Masking:
    """How a site's numbers leave in a secure sum: under the rules of that sum, as what `mask` makes of them."""

    rules: Rules
    mask: Callable[[torch.Tensor], torch.Tensor]


def site_step(
    job: Job, state: State, host: Host, *, arrived: Sequence[str] = (), masking: Masking | None = None
) -> bytes:
    """A site's whole part in a round: the bytes to send. Every release is made here, in one order: in the plan, charged
    once, computed, written with its memory, and then sent.

    Whatever goes wrong after the charge, the round stays charged and leaves nothing behind. A release that was made
    before (the server asks again after a crash) is sent again as it was, for free. `arrived` are earlier releases that
    the server will not ask for again.
    """
    if (job.secure is None) != (masking is None):
        raise BoundaryError("In a run with secure sums nothing leaves unmasked.")
    release_id = f"{job.run}/{host.name}/{state.round}"
    with host.computing(release_id):
        kept = host.ledger.outbox(release_id)
        if kept is not None:
            return kept
        if not host.keep and host.ledger.status_of(release_id) == "made":
            return host.ledger.made_again(release_id, _again(job, state, host, masking).encode())
        first = host.ledger.remembered(job.run, host.name, before=state.round) is None
        cost = job.round_cost(state.round, first=first)
        host.ledger.charge(
            job.run,
            host.dataset,
            release_id,
            cost,
            part=host.part,
            noise=host.noise_source(),
            again=not host.final,
            arrived=arrived,
        )
        release, memory = _release(job, state, host, cost, masking)
        read = host.keep or job.method.adopt is not None or state.round < job.settings.rounds - 1
        stays = encode(memory) if memory and read else b""  # a simulation keeps no memory that nothing will read
        return host.ledger.fill(release_id, release.encode(), stays, held=host.held, keep=host.keep)


def _again(job: Job, state: State, host: Host, masking: Masking | None) -> Release:
    """A simulated release that was made before and not kept, from the same seed."""
    first = host.ledger.remembered(job.run, host.name, before=state.round) is None
    return _release(job, state, host, job.round_cost(state.round, first=first), masking)[0]


def _release(job: Job, state: State, host: Host, charged: Cost, masking: Masking | None) -> tuple[Release, Items]:
    """What the method lets out, and what it remembers. Of a secure sum nothing is remembered: unmasked, the numbers
    hold only a share of the noise."""
    door: PrivateRecords | PrivateShare
    if masking is None:
        door, items, memory = ask_method(job, state, host)
        check_cost(door.meter.cost, charged)
    else:
        door, vector = shared_vector(job, state, host, masking.rules)
        check_cost(door.meter.cost, charged)
        items, memory = {MASKED: Statistics({MASKED: masking.mask(vector)})}, {}
    leaves = job.method.leaves if masking is None else {MASKED: Statistics}
    return make_release(door, items, leaves=leaves, run=job.run, site=host.name, round=state.round), memory


def shared_vector(
    job: Job, state: State, host: Host, rules: Rules
) -> tuple[PrivateRecords | PrivateShare, torch.Tensor]:
    """What a site adds to a secure sum, with its share of the noise, and the door it went through."""
    at_site = job.method.guarantee == "site"
    door, items, _ = ask_method(job, state, host, shared=rules if at_site else None)
    vector = job.flat(items)
    if at_site:
        return door, vector
    noise = host.noise_key(job, state.round).child("share").noise()
    share = PrivateShare(rules, noise, unit=job.task.unit, relation=job.task.relation)
    return share, share.noisy(vector)


def check_cost(metered: Cost, charged: Cost) -> None:
    """What the door has metered is what was planned and charged, no more and no less."""
    if metered != charged:
        raise BoundaryError(
            f"The door has metered {metered.describe()}, but {charged.describe()} was planned and charged."
        )


def ask_method(
    job: Job, state: State, host: Host, *, shared: Rules | None = None
) -> tuple[PrivateRecords, Items, Items]:
    """The method's part at a site: the door it went through, what is to leave and what is remembered."""
    door = PrivateRecords(
        host.records(),
        declared=job.task.records,
        classes=len(job.task.classes),
        noise=host.noise_key(job, state.round).noise(),
        unit=job.task.unit,
        relation=job.task.relation,
        device=job.task.device,
        allow_exact=host.allow_exact and job.method.guarantee != "site",
        shared=shared,
        reference=host.reference,
        memory=host.step_memory,
    )
    site = Site(host.name, door, host.memory(job, state.round), job.task)
    items, memory = job.method.client(job.settings, state, site, job.key.child("client", host.name, state.round))
    return door, items, memory


def check_state(job: Job, state: State) -> None:
    """What the server sends down has the kinds, names, types and shapes that the method begins with. A tensor of
    another shape could be added to more places than were measured, or fail only where there is a record."""
    for name, own in initial_state(job).items.items():
        sent = state.items.get(name)
        if sent is None or (sent.kind, sent.shapes()) != (own.kind, own.shapes()):
            raise WireError(f"Item '{name[:40]}' of the state is not what the method declares.")


def adopt_step(job: Job, state: State, host: Host) -> dict[str, Payload]:
    """What a site makes for itself from the final state and its own raw records. Nothing of it is sent."""
    if job.method.adopt is None:
        return {}
    site = OwnSite(host.name, host.records().floats(), host.memory(job, state.round), job.task)
    return dict(job.method.adopt(job.settings, state, site, job.key.child("adopt", host.name)))


def receive(job: Job, state: State, site: str, raw: bytes) -> Release:
    """A site's bytes as a release, or a `WireError`: right run, round and sender, exactly the declared items, shapes,
    words and cost, and nothing that the method cannot have made."""
    if len(raw) > most_bytes(job, site, state.round):
        raise WireError(f"Message of {len(raw)} bytes is longer than a release of this run can be.")
    try:
        release = Release.decode(raw)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WireError("Message is not a release.") from error
    if (release.run, release.site, release.round) != (job.run, site, state.round):
        raise WireError(f"Message is not from site '{site}' for round {state.round} of this run.")
    if release.noise not in (SIMULATION, DEPLOYMENT) or release.cost not in job.round_costs(state.round):
        raise WireError("Message does not say what was planned for this round.")
    manifest = {name: kind.kind for name, kind in job.method.leaves.items()}
    if {name: p.kind for name, p in release.items.items()} != manifest:
        raise WireError(f"Message does not carry exactly the items {sorted(manifest)}.")
    words = job.specs(site)
    for name, payload in release.items.items():
        if payload.shapes() != job.shapes[name]:
            raise WireError(f"Item '{name}' does not have the declared shapes.")
        if payload.spec != words.get(name, {}):
            raise WireError(f"Item '{name}' does not carry the declared words.")
        if isinstance(payload, SyntheticSet) and not labels_in_range(payload, len(job.task.classes)):
            raise WireError(f"Item '{name}' has labels outside the declared classes.")
    possible = job.method.possible
    why = None if possible is None else possible(job.settings, job.task, state, site, release.items)
    if why is not None:
        raise WireError(f"Message cannot be honest: {why}.")
    return release


def most_bytes(job: Job, site: str, round: int) -> int:
    """The length of a release, from public numbers, with room for headers."""
    numbers = sum(
        math.prod(size) * WIDTHS[dtype] + HEADER for item in job.shapes.values() for dtype, size in item.values()
    )
    words = json.dumps([dict(job.specs(site)), [cost.to_json() for cost in job.round_costs(round)]], default=str)
    return numbers + 8 * len(words) + 64 * HEADER


def labels_in_range(made: SyntheticSet, classes: int) -> bool:
    """Hard labels are declared classes; soft labels are one non-negative row a record that sums to one at most."""
    if made.y.dtype == torch.int64 and made.y.ndim == 1:
        return bool(((made.y >= 0) & (made.y < classes)).all())
    return made.y.ndim == 2 and bool((made.y >= 0).all()) and bool((made.y.double().sum(1) <= 1.0 + 1e-3).all())


def server_step(
    job: Job,
    state: State,
    inbox: Mapping[str, Items],
    *,
    hub: Hub | None = None,
    opening: Opening | None = None,
) -> State:
    """The server's whole part in a round. With a client-level guarantee it works behind the hub's own door, or behind
    the one to a secure sum's `opening`."""
    key = job.key.child("server", state.round)
    if job.method.guarantee != "client":
        items = job.method.server(job.settings, job.task, state, inbox, key)
        return State(state.round + 1, dict(items))
    if hub is None:
        raise BoundaryError("A client-level method needs a ledger at the hub.")
    release_id = f"{job.run}/hub/{state.round}"
    kept = hub.ledger.outbox(release_id)
    if kept is not None:
        return State(state.round + 1, decode(kept)[0])
    door: PrivateSum
    if opening is not None:
        door = OpenedSum(opening, declared=len(job.task.sites))
    else:
        noise = hub.noise_key(job, state.round).noise()
        door = PrivateSum(inbox, declared=len(job.task.sites), noise=noise)
    items = job.method.server(job.settings, job.task, state, door, key)
    raw = encode(items, {"run": job.run, "round": state.round})
    hub.ledger.release(job.run, hub.dataset, release_id, cost=door.meter.cost, payload=raw)
    return State(state.round + 1, dict(items))


def folding_of(job: Job, state: State, *, room: int) -> Folding | None:
    """The server's step as one that takes releases in one by one: where the method has one, and the releases of a
    round would together be over `room` bytes. Fewer are kept: to have them saves making them again after a cut."""
    fold = job.method.fold
    plain = job.secure is None and job.method.guarantee != "client"
    if fold is None or fold.server is not job.method.server or not plain or not crowded(job, room=room):
        return None
    return fold.begin(job.settings, job.task, state)


def crowded(job: Job, *, room: int) -> bool:
    """Whether the releases of one round are over `room` bytes together."""
    return job.task.asked * most_bytes(job, job.task.sites[0], 0) > room


def folded_step(job: Job, state: State, folding: Folding) -> State | None:
    """The server's step on what was taken in; None where it needs the releases themselves."""
    items = folding.server(job.key.child("server", state.round))
    return None if items is None else State(state.round + 1, dict(items))


def surviving_step(
    job: Job,
    state: State,
    inbox: Mapping[str, Items],
    *,
    hub: Hub | None = None,
    quorum: int = 1,
    folding: Folding | None = None,
) -> tuple[State, dict[str, str]]:
    """The server's step, without a sender that makes it fail: the new state, and who was left out and why.

    Which one it is shows when the step succeeds without it. Where no single one is at fault, or too few would be left,
    the failure stands: nothing is written. A state that is not finite cannot be built, so it counts as a failure. What
    a `folding` has taken in need not be read again, unless it takes more than that.
    """
    try:
        after = None if folding is None else folded_step(job, state, folding)
        return after or server_step(job, state, inbox, hub=hub), {}
    except (BudgetError, LedgerError, OSError):
        raise
    except Exception as error:
        failure = error
    for site in sorted(inbox) if len(inbox) - 1 >= max(1, quorum) else ():
        others = {name: inbox[name] for name in sorted(inbox) if name != site}
        try:
            after = server_step(job, state, others, hub=hub)
        except (BudgetError, LedgerError, OSError):
            raise
        except Exception:
            continue
        return after, {site: f"the server's step fails with its release ({type(failure).__name__})"}
    raise failure


def initial_state(job: Job) -> State:
    """What the server begins with, before the first round."""
    return State(0, dict(job.method.init(job.settings, job.task, job.key.child("init"))))


def participants(job: Job, round: int) -> list[str]:
    """Who takes part in a round: a fixed share of the sites, at least one, chosen from public randomness.

    Everybody can see who took part, so nothing is ever charged less for it.
    """
    sites = list(job.task.sites)
    if job.task.asked >= len(sites):
        return sites
    order = job.key.child("participants", round).numpy().permutation(len(sites))
    return [sites[i] for i in sorted(order[: job.task.asked])]
