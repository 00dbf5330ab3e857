"""A tiny federation in which every method can be run in a second or so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prismfl.core.job import Job
from prismfl.core.method import Method, State
from prismfl.core.payloads import Items, decode, encode
from prismfl.core.records import Records
from prismfl.core.release import Release
from prismfl.core.rounds import Host, Hub, adopt_step, initial_state, receive, server_step, site_step
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger

CLASSES = 3
RECORDS = 24
NAMES = sorted(METHODS)
PRIVATE = [name for name in NAMES if METHODS[name].guarantee is not None]
AT_SITE = [name for name in NAMES if METHODS[name].guarantee == "site" and METHODS[name].leaves]
UNPROTECTED = [name for name in NAMES if METHODS[name].guarantee is None]


def some_records(n: int, *, seed: int, classes: tuple[int, ...] = (0, 1, 2), table: bool = False) -> Records:
    """Pictures with a bright bar whose place tells the class (or rows of numbers), plus noise."""
    g = torch.Generator().manual_seed(seed)
    y = torch.tensor([classes[i % len(classes)] for i in range(n)], dtype=torch.int64)
    x = 0.3 * torch.rand(n, 1, 8, 8, generator=g)
    for i in range(n):
        x[i, 0, 2 * int(y[i]) : 2 * int(y[i]) + 2] += 0.6
    return Records(2 * x.flatten(1)[:, :12] - 1 if table else x, y)


def make_job(name: str, *, sigma: float = 1.3, **changes: Any) -> Job:
    method = METHODS[name]
    settings: dict[str, Any] = {**method.tiny, **changes.pop("settings", {})}
    if "sigma" in method.settings.model_fields:
        settings.setdefault("sigma", sigma)
    table = "image" not in method.kinds
    g = torch.Generator().manual_seed(99)
    task = Task(
        data="tiny",
        shape=(12,) if table else (1, 8, 8),
        classes=tuple("abc"),
        sites=("site-0",) if method.pooled else ("site-0", "site-1", "site-2"),
        records=3 * RECORDS if method.pooled else RECORDS,
        model="mlp:8",
        public=torch.rand(60, 1, 8, 8, generator=g) if method.needs_public else None,
    )
    return Job("law", method, method.settings(**settings), replace(task, **changes), seed=7)


@dataclass
class World:
    """A job with its sites; `run` takes it to the end and keeps every release."""

    job: Job
    hosts: list[Host]
    hub: Hub | None
    releases: list[Release]

    @property
    def method(self) -> Method:
        return self.job.method

    def run(self, *, reverse: bool = False, recode: bool = False) -> tuple[State, dict[str, Items]]:
        """All rounds. `reverse` visits the sites backwards, `recode` sends everything through bytes once more."""
        state = initial_state(self.job)
        for _ in range(self.job.settings.rounds):
            inbox = {}
            for host in reversed(self.hosts) if reverse else self.hosts:
                sent = self._recoded(state) if recode else state
                release = receive(self.job, state, host.name, site_step(self.job, sent, host))
                self.releases.append(release)
                inbox[host.name] = release.items
            state = server_step(self.job, state, inbox, hub=self.hub)
        return state, {host.name: adopt_step(self.job, state, host) for host in self.hosts}

    def _recoded(self, state: State) -> State:
        return State(state.round, decode(encode(state.items))[0])

    def charged(self, ledger: Ledger, unit: str = "record") -> Cost:
        return sum((c.cost for c in ledger.charges(run=self.job.run)), start=Cost.zero(unit))


def make_world(
    job: Job,
    folder: Path,
    *,
    records: Mapping[str, Records] | Callable[[str], Records] | None = None,
    cap: float | None = None,
    allow_exact: bool = True,
) -> World:
    table = len(job.task.shape) == 1
    hosts = []
    client_level = job.method.guarantee == "client"
    plan = job.plan()
    budget = None if cap is None else Cap(cap, 1e-5, plan.unit, plan.relation)
    for i, name in enumerate(job.task.sites):
        if records is None:
            own = some_records(job.task.records, seed=i, table=table)
        else:
            own = records(name) if callable(records) else records[name]
        ledger = Ledger.open(folder / f"{name}.sqlite")
        dataset = ledger.dataset(
            name, records=[r.numpy().tobytes() for r in own.x], cap=None if client_level else budget
        )
        ledger.reserve(job.run, dataset, Cost.non_private() if client_level else plan)
        host = Host(name, lambda own=own: own, ledger, dataset, folder / name, allow_exact=allow_exact)  # type: ignore[misc]
        hosts.append(host)
    hub = None
    if client_level:
        ledger = Ledger.open(folder / "hub.sqlite")
        dataset = ledger.dataset("clients", records=[n.encode() for n in job.task.sites], cap=budget)
        ledger.reserve(job.run, dataset, plan)
        hub = Hub(ledger, dataset)
    return World(job, hosts, hub, [])


def fingerprint(state: State, own: Mapping[str, Items]) -> dict[str, str]:
    found = {f"server/{k}": p.digest for k, p in state.items.items()}
    return found | {f"{site}/{k}": p.digest for site, items in own.items() for k, p in items.items()}
