"""The records of a run on one machine: read, split over its simulated sites, and the public images beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.core.job import Job
from prismfl.core.records import Records
from prismfl.data import DATASETS, Dataset, Spec, load, load_path, parse_split, partition
from prismfl.data.facts import UndeclaredError
from prismfl.data.folders import class_folders, folder_shape
from prismfl.errors import UserError
from prismfl.rng import Identities
from prismfl.runs.config import RunConfig
from prismfl.runs.planning import (
    check_path,
    declared_spec,
    unit_column,
)

Rows = np.ndarray[Any, Any]


def spec_of(config: RunConfig) -> Spec:
    """The declared facts of the data; a run may take what is left open (an image size) from the files."""
    try:
        return declared_spec(config)
    except UndeclaredError:
        place = Path(config.data)
        if not place.is_dir():
            return read_data(config).spec
        names = tuple(config.classes) if config.classes else class_folders(place)
        shape = folder_shape(place, classes=config.classes, size=config.image_size, channels=config.channels)
        size = 0 if config.records is None else config.records * config.sites
        return Spec(place.name, "image", shape, names, size, "", "", unit=unit_column(config))


def read_data(config: RunConfig, *, held_out: bool = True) -> Dataset:
    """The records. Own data without a test part of its own keep a share back for it, unless `held_out` is False."""
    if config.data in DATASETS:
        return load(config.data, data_dir=config.data_dir, subset=config.subset)
    check_path(config)
    split = parse_split(config.split)
    marked = config.test if isinstance(config.test, str) else None
    found = load_path(
        Path(config.data),
        label=config.label,
        classes=config.classes,
        image_size=config.image_size,
        channels=config.channels,
        schema=config.schema_file,
        unit=unit_column(config),
        natural=split.column if split.name == "natural" else None,
        train_size=None if config.records is None else config.records * config.sites,
        test=marked,
        test_fraction=config.test if held_out and not isinstance(config.test, str) else 0.0,
    )
    if config.features is not None and found.spec.shape != (config.features,):
        raise UserError(f"Expected {config.features} numbers a record (key: features), got {found.spec.shape}.")
    return found


def parts_digest(dataset: Dataset, parts: Sequence[Rows]) -> str | None:
    """Which of the user's records each simulated site holds: a record pays for one of them only if that stays so."""
    names = dataset.identity
    if names is None:
        return None
    sites = [hashlib.sha256(b"".join(sorted(names[i] for i in part))).hexdigest() for part in parts]
    return hashlib.sha256("".join(sites).encode()).hexdigest()


def split_records(config: RunConfig, dataset: Dataset, job: Job) -> list[Rows]:
    """The rows of the training records that each site holds; a pooled method has all in one place."""
    return [np.arange(len(dataset.y_train))] if job.method.pooled else dealt(config, dataset)


def dealt(config: RunConfig, dataset: Dataset) -> list[Rows]:
    """The rows of the training records that the split of a config deals to each site."""
    return list(
        partition(
            dataset.y_train.numpy(),
            config.sites,
            split=config.split,
            seed=config.seed or 0,
            natural=dataset.natural_train,
            classes=len(dataset.spec.classes),
            identity=dataset.identity,
        )
    )


def parts_given(dataset: Dataset, job: Job) -> list[Rows]:
    """The rows of each site where every record says its own; a pooled method has all in one place."""
    if job.method.pooled:
        return [np.arange(len(dataset.y_train))]
    assert dataset.natural_train is not None, "records in hand know their site"
    return [np.flatnonzero(dataset.natural_train == str(number)) for number in range(len(job.task.sites))]


def records_of(dataset: Dataset, rows: Rows) -> Callable[[], Records]:
    """What gives the training records of some rows, whenever it is called."""
    index = torch.from_numpy(np.asarray(rows))
    unit = None if dataset.unit_train is None else torch.as_tensor(dataset.unit_train)
    named: list[Identities] = []  # the same records in every round: named once

    def take() -> Records:
        if dataset.pictures is not None and not named:
            named.append(shown_records(dataset, rows).identities)
        return Records(dataset.x_train[index], dataset.y_train[index], None if unit is None else unit[index], named)

    return take


def shown_records(dataset: Dataset, rows: Rows) -> Records:
    """The training records of some rows as they came, before any encoder looked at them."""
    index = torch.from_numpy(np.asarray(rows))
    unit = None if dataset.unit_train is None else torch.as_tensor(dataset.unit_train)[index]
    return Records(
        (dataset.x_train if dataset.pictures is None else dataset.pictures)[index], dataset.y_train[index], unit
    )


def raw_records(records: Records) -> list[bytes]:
    """Each record as bytes, its values and its label: what the ledger knows it by."""
    x, y = records.x.numpy(), records.y.numpy()
    return [x[i].tobytes() + int(y[i]).to_bytes(4, "little") for i in range(len(y))]
