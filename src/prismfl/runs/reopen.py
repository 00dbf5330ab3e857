"""A run directory opened again: its job, its final state, and the truth that attacks and audits are judged by.

A run is a function of its seed, so the machine that simulated it can replay a site's round and see which records its
door used. Attacks never import this; scorers compare what they found with what this returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Payload, SyntheticSet, decode
from prismfl.core.records import Records
from prismfl.core.trial import Watch, ask_once
from prismfl.data import DATASETS, Dataset
from prismfl.errors import UserError
from prismfl.methods.gradients.fedsgd import batch_rows
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import LEDGER_FILE
from prismfl.runs import encoded
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.directory import RunDirectory
from prismfl.runs.encoders import encoder_of
from prismfl.runs.opened import read_config
from prismfl.runs.parted import parted
from prismfl.runs.planning import find_method, public_images_of, task_of
from prismfl.runs.records import read_data, records_of, spec_of, split_records
from prismfl.runs.result import predictor


@dataclass(frozen=True)
class Reopened:
    """What was run, and lazily what it was run on. Whoever holds this holds the private records: on site only."""

    directory: RunDirectory
    config: RunConfig
    job: Job

    @cached_property
    def dataset(self) -> Dataset:
        """The data of the run, read again, and looked at again where its records were rows of a public encoder."""
        job = self.whole_job if encoded.wanted(self.config, self.job.method) else self.job
        return encoded.look(read_data(self.config), job.task, job.method)

    @cached_property
    def parts(self) -> list[np.ndarray[Any, Any]]:
        """The rows of the training records that each site held."""
        return split_records(self.config, self.dataset, self.job)

    @cached_property
    def records(self) -> dict[str, Records]:
        """The raw records of each site."""
        return {name: records_of(self.dataset, rows)() for name, rows in zip(self.job.task.sites, self.parts)}

    @cached_property
    def state(self) -> State:
        """The newest checkpoint; a run without one is an error."""
        found = self.directory.load_state()
        if found is None:
            raise UserError(f"'{self.directory.path}' has no checkpoint: nothing was sent yet.")
        return found

    @property
    def synthetic(self) -> SyntheticSet | None:
        """The synthetic set in the newest checkpoint, if there is one."""
        made = self.state.items.get("synthetic")
        return made if isinstance(made, SyntheticSet) else None

    @cached_property
    def public(self) -> torch.Tensor | None:
        """The public images the run used, made or read again."""
        return public_images_of(self.config, spec_of(self.config), self.job.method, lambda _: None)

    @cached_property
    def whole_job(self) -> Job:
        """The job with its public images and encoder, as the sites had it."""
        encoder = encoder_of(self.config, self.job.method)
        if self.job.task.parts is not None:
            encoder = parted(encoder, self.job.task.parts)
        return replace(self.job, task=replace(self.job.task, public=self.public, encoder=encoder))

    def predict(self) -> Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]:
        """How a model of this run scores records."""
        return predictor(self.whole_job)

    def batch_behind(self, site: str, state: State) -> Records:
        """The records that a site used in a round: its batch, or everything its local training went through."""
        return self._behind(site, state).floats()

    def _behind(self, site: str, state: State) -> Records:
        job, records = self.whole_job, self.records[site]
        if job.method.guarantee == "site":
            return self._replayed(site, state)
        if "gradient" in job.method.leaves:
            size = int(getattr(job.settings, "batch", len(records)))
            return records.take(batch_rows(len(records), size, job.key.child("client", site, state.round)))
        return records

    def _replayed(self, site: str, state: State) -> Records:
        """The batches of a simulation, drawn again from its seed."""
        if self.config.noise == "operating-system":
            raise UserError(
                f"The noise of '{self.directory.path}' came from the operating system, so nobody can draw its batches "
                "again to judge an attack; attack a run with --seed, which is a simulation."
            )
        job, records, watch = self.whole_job, self.records[site], _Samples()
        folder = Path(self.config.ledger or self.directory.path / "ledger")
        alone = folder / f"{site}.sqlite"  # a ledger a site that lasts, or an earlier version's
        file = alone if self.config.data in DATASETS and alone.exists() else folder / LEDGER_FILE
        with Ledger.open(file, create=False) as ledger:
            raw = ledger.remembered(job.run, site, before=state.round)
        ask_once(
            job,
            state,
            records,
            job.simulated_noise(site, state.round).noise(),
            key=job.key.child("client", site, state.round),
            site=site,
            memory={} if raw is None else decode(raw)[0],
            watch=watch,
        )
        if not watch.used:
            return Records(records.x[:0], records.y[:0])
        return Records(torch.cat([r.x for r in watch.used]), torch.cat([r.y for r in watch.used]))


class _Samples(Watch):
    """Remembers which records a door's answers were computed from."""

    def __init__(self) -> None:
        self.used: list[Records] = []

    def sampled(self, sample: Records) -> None:
        self.used.append(sample)


def reopen(path: Path) -> Reopened:
    """The run at `path`, finished or not; its config must be whole."""
    directory = RunDirectory.open(path)
    identity, config = read_config(directory)
    method = find_method(config.method)
    settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    task = task_of(config, spec_of(config), method)
    return Reopened(directory, config, Job(identity, method, settings, task, config.seed or 0))
