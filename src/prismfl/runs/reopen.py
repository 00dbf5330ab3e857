"""A run directory opened again: its job, its data and its final state, for attacks, audits and on-site reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.core.job import Job
from prismfl.core.method import State
from prismfl.core.payloads import Payload, SyntheticSet
from prismfl.data import Dataset, load_public
from prismfl.errors import UserError
from prismfl.runs.config import RunConfig, validate
from prismfl.runs.directory import RunDirectory
from prismfl.runs.opened import read_config
from prismfl.runs.planning import find_method, task_of
from prismfl.runs.records import read_data, spec_of, split_records
from prismfl.runs.result import predictor


@dataclass(frozen=True)
class Reopened:
    """What was run, and lazily what it was run on. Whoever holds this holds the private records: on site only."""

    directory: RunDirectory
    config: RunConfig
    job: Job

    @cached_property
    def dataset(self) -> Dataset:
        return read_data(self.config)

    @cached_property
    def parts(self) -> list[np.ndarray[Any, Any]]:
        return split_records(self.config, self.dataset, self.job)

    @cached_property
    def state(self) -> State:
        found = self.directory.load_state()
        if found is None:
            raise UserError(f"'{self.directory.path}' has no checkpoint: nothing was sent yet.")
        return found

    @property
    def synthetic(self) -> SyntheticSet | None:
        made = self.state.items.get("synthetic")
        return made if isinstance(made, SyntheticSet) else None

    @cached_property
    def public(self) -> torch.Tensor | None:
        """The public images the run used, made or read again."""
        if not self.job.method.needs_public:
            return None
        shape = self.job.task.shape
        found = load_public(
            self.config.public or "procedural",
            shape=(shape[0], shape[1], shape[2]),
            count=self.config.public_count,
            key_seed=self.config.seed or 0,
            data_dir=self.config.data_dir,
        )
        return found.images

    def predict(self) -> Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]:
        return predictor(self.job)


def reopen(path: Path) -> Reopened:
    """The run at `path`, finished or not; its config must be whole."""
    directory = RunDirectory.open(path)
    identity, config = read_config(directory)
    method = find_method(config.method)
    settings = validate(method.settings, config.settings, f"the settings of {method.name}")
    task = task_of(config, spec_of(config), method)
    return Reopened(directory, config, Job(identity, method, settings, task, config.seed or 0))
