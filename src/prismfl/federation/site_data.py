"""stub"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from prismfl.boundary import Records
from prismfl.data import DATASETS, Dataset, Spec, load_path, partition
from prismfl.data import load as load_named
from prismfl.federation.site_config import SiteConfig


@dataclass(frozen=True)
class SiteData:
    spec: Spec
    records: Records
    prints: list[bytes]
    left_out: int = 0


@lru_cache(maxsize=1)
def named(data: str, data_dir: str | None) -> Dataset:
    return load_named(data, data_dir=data_dir)


def facts(config: SiteConfig) -> Spec:
    if config.data in DATASETS:
        return DATASETS[config.data]
    return _read(config).spec


def _read(config: SiteConfig) -> Dataset:
    if config.data in DATASETS:
        return named(config.data, config.data_dir)
    unit = None if config.unit in ("record", "client") else config.unit
    return load_path(Path(config.data), label=config.label, schema=config.schema_file, unit=unit, classes=config.classes)


def load(folder: Path, config: SiteConfig) -> SiteData:
    dataset = _read(config)
    rows = np.arange(len(dataset.y_train))
    if config.part is not None:
        rows = partition(
            dataset.y_train.numpy(), config.parts, split=config.split, seed=config.seed,
            classes=len(dataset.spec.classes), identity=dataset.identity,
        )[config.part]
    index = torch.from_numpy(np.asarray(rows))
    unit = None if dataset.unit_train is None else torch.as_tensor(dataset.unit_train)[index]
    records = Records(dataset.x_train[index], dataset.y_train[index], unit)
    return SiteData(dataset.spec, records, dataset.prints_train or [row.tobytes() for row in records.x.numpy()])
