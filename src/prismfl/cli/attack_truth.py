"""The one place where the truth of a simulated run is rebuilt: which records stood behind a release.

A run is a function of its seed, so the machine that simulated it can replay a site's round and watch which records its
door used. Attacks never import this; the scorer compares what they found with what this returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.job import Job
from prismfl.core.method import Settings, Site, State
from prismfl.core.payloads import decode
from prismfl.core.records import Records
from prismfl.data import DATASETS, Dataset
from prismfl.errors import UserError
from prismfl.methods.gradients.fedsgd import batch_rows
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import LEDGER_FILE
from prismfl.rng import RecordDraws
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.directory import RunDirectory
from prismfl.runs.planning import find_method, task_of
from prismfl.runs.records import read_data, split_records


class WatchedRecords(PrivateRecords):
    """A door that remembers which records its mechanisms sampled."""

    def __init__(self, records: Records, **settings: Any) -> None:
        super().__init__(records, **settings)
        self.used: list[Records] = []

    def _sample(self, rate: float, draws: RecordDraws) -> Records:
        sample = super()._sample(rate, draws)
        self.used.append(sample)
        return sample


def job_of(directory: RunDirectory) -> tuple[Job, RunConfig]:
    """The public definition of a run, from its directory."""
    stored = directory.read_json("config.json")
    identity = str(stored.pop("run"))
    stored.pop("created", None)
    config: RunConfig = validate(RunConfig, stored, str(directory.path / "config.json"))
    method = find_method(config.method)
    settings: Settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    spec = read_data(config).spec
    return Job(identity, method, settings, task_of(config, spec, method), config.seed or 0), config


def site_records(job: Job, config: RunConfig, dataset: Dataset) -> dict[str, Records]:
    parts = split_records(config, dataset, job)
    rows = {name: torch.as_tensor(part) for name, part in zip(job.task.sites, parts)}
    unit = None if dataset.unit_train is None else torch.as_tensor(dataset.unit_train)
    return {
        name: Records(dataset.x_train[r], dataset.y_train[r], None if unit is None else unit[r])
        for name, r in rows.items()
    }


def batch_behind(job: Job, records: Records, site: str, *, state: State, folder: Path) -> Records:
    """The records that a site used in a round: its batch, or everything its local training went through."""
    key = job.key.child("client", site, state.round)
    if job.method.guarantee == "site":
        return _replayed(job, records, site, state=state, folder=folder)
    if "gradient" in job.method.leaves:
        size = int(getattr(job.settings, "batch", len(records)))
        return records.take(batch_rows(len(records), size, key))
    return records


def _replayed(job: Job, records: Records, site: str, *, state: State, folder: Path) -> Records:
    """The batches of a simulation, drawn again from its seed."""
    told, task = RunDirectory(folder).read_json("config.json"), job.task
    if told.get("noise") == "operating-system":
        raise UserError(
            f"The noise of '{folder}' came from the operating system, so nobody can draw its batches again to judge an "
            "attack; attack a run with --seed, which is a simulation."
        )
    door = WatchedRecords(
        records,
        declared=task.records,
        classes=len(task.classes),
        noise=job.simulated_noise(site, state.round).noise(),
        unit=task.unit,
        relation=task.relation,
        device=task.device,
    )
    file = f"{site}.sqlite" if told["data"] in DATASETS else LEDGER_FILE
    place = Path(told.get("ledger") or folder / "ledger") / file
    with Ledger.open(place, create=False) as ledger:
        raw = ledger.remembered(job.run, site, before=state.round)
    memory = {} if raw is None else decode(raw)[0]
    job.method.client(job.settings, state, Site(site, door, memory, task), job.key.child("client", site, state.round))
    x = torch.cat([r.x for r in door.used]) if door.used else records.x[:0]
    y = torch.cat([r.y for r in door.used]) if door.used else records.y[:0]
    return Records(x, y)
