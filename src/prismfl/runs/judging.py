"""The synthetic table that a run ends with, judged on the held-out records. Exact: of own records it stays here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismfl.core.job import Job
from prismfl.core.payloads import Payload, SyntheticSet
from prismfl.data import Dataset
from prismfl.data.declared import declared_words
from prismfl.data.schema import words
from prismfl.metrics.judged import faithful, useful
from prismfl.nets.columns import Columns


def judge_table(job: Job, items: Mapping[str, Payload], dataset: Dataset) -> dict[str, Any]:
    """What models learn from the synthetic records, and how far their tables are from real ones; nothing where there
    are no synthetic records of a table with classes, or nothing is held out."""
    made, classes = items.get("synthetic"), len(job.task.classes)
    if job.task.kind != "table" or not isinstance(made, SyntheticSet) or classes < 2:
        return {}
    if not len(made.y) or not len(dataset.y_test):
        return {}
    columns = columns_of(job, dataset)
    pair = made.x, made.hard_y, dataset.x_test, dataset.y_test
    return {
        "useful": useful(*pair, classes=classes),
        "faithful": faithful(*pair, columns=columns, classes=classes),
        "records": len(made.y),
    }


def columns_of(job: Job, dataset: Dataset) -> Columns:
    """The columns as they are declared; numbers where nothing is."""
    known = words(dataset.schema) if dataset.schema is not None else declared_words(job.task.data)
    return Columns.parse(known or ["n"] * job.task.shape[0])
