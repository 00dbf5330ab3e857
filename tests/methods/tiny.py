"""One site of a tiny federation asked once: for methods that no hand can follow to the last number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.job import Job
from prismfl.core.method import Site, State
from prismfl.core.payloads import Items, Payload
from prismfl.core.records import Records
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from tests.laws.world import make_job, some_records


@dataclass(frozen=True)
class Answer:
    """What a site lets out, what it remembers, what its meter says, and the job it was asked for."""

    leaves: Items
    stays: Items
    cost: Cost
    job: Job

    def shapes(self) -> dict[str, dict[str, tuple[str, tuple[int, ...]]]]:
        return {name: payload.shapes() for name, payload in self.leaves.items()}


def job_of(name: str, **settings: Any) -> Job:
    return make_job(name, settings=settings)


def answer(
    name: str,
    *,
    records: Records | None = None,
    noise: int = 0,
    round: int = 0,
    memory: Mapping[str, Payload] | None = None,
    **settings: Any,
) -> Answer:
    """The first site's part in a round, behind a door as `core` makes it."""
    job = job_of(name, **settings)
    method, task = job.method, job.task
    door = PrivateRecords(
        some_records(task.records, seed=0) if records is None else records,
        declared=task.records,
        classes=len(task.classes),
        noise=Key.seed(noise).noise(),
        allow_exact=method.guarantee != "site",
    )
    state = State(round, method.init(job.settings, task, job.key.child("init")))
    leaves, stays = method.client(
        job.settings, state, Site("site-0", door, memory or {}, task), job.key.child("client")
    )
    return Answer(leaves, stays, door.meter.cost, job)


def nobody() -> Records:
    """A site without records."""
    return Records(torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64))


def served(name: str, told: Answer, **settings: Any) -> Items:
    """The server's outcome where every site has sent the same."""
    job = job_of(name, **settings)
    inbox = dict.fromkeys(job.task.sites, told.leaves)
    return job.method.server(job.settings, job.task, State(job.settings.rounds - 1, {}), inbox, job.key.child("server"))
