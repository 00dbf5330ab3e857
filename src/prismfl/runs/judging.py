"""The synthetic records that a run ends with, judged on the held-out ones. Exact: of own records it stays here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.core.job import Job
from prismfl.core.payloads import Payload, SyntheticSet
from prismfl.core.records import as_floats
from prismfl.data import Dataset
from prismfl.data.declared import declared_words
from prismfl.data.schema import Schema, words
from prismfl.metrics import multimodal
from prismfl.metrics.judged import faithful, useful, useful_number
from prismfl.nets.block_frame import BlockFrame
from prismfl.nets.columns import Columns

Array = npt.NDArray[Any]


def judge_table(job: Job, items: Mapping[str, Payload], dataset: Dataset) -> dict[str, Any]:
    """What models learn from the synthetic records, and how far their tables are from real ones; nothing where there
    are no synthetic records of a table, nothing to predict, or nothing is held out."""
    made, classes = items.get("synthetic"), len(job.task.classes)
    number = None if dataset.schema is None else dataset.schema.target
    if job.task.kind != "table" or not isinstance(made, SyntheticSet) or (classes < 2 and number is None):
        return {}
    if not len(made.y) or not len(dataset.y_test):
        return {}
    pair = made.x, made.hard_y, dataset.x_test, dataset.y_test
    if number is None:
        learnt = useful(*pair, classes=classes)
    else:
        assert dataset.schema is not None
        learnt = useful_number(*_apart(dataset.schema, made.x), *_apart(dataset.schema, dataset.x_test))
    distances = faithful(*pair, columns=columns_of(job, dataset), classes=classes)
    return {"useful": learnt, "faithful": distances, "records": len(made.y)}


def _apart(schema: Schema, x: torch.Tensor) -> tuple[Array, Array]:
    """The features without the number that is predicted, and that number in its own unit (NaN where it is missing)."""
    kept = np.ones(schema.width, dtype=bool)
    for column, block in schema.blocks():
        kept[block] &= column.name != schema.label
    return x.numpy()[:, kept], schema.values(x)[schema.label]


def judge_parts(job: Job, items: Mapping[str, Payload], dataset: Dataset) -> dict[str, Any]:
    """What linear models learn from each part of the synthetic records and from all, seen through the public features,
    and from the words of a text; and how often the text that fits a picture is found among ten."""
    made, parts = items.get("synthetic"), job.task.parts
    if parts is None or not isinstance(made, SyntheticSet) or not len(dataset.y_test) or len(job.task.classes) < 2:
        return {}
    from prismfl.methods.prism.encoder import FeatureSettings, encoder  # only where there are parts: runs start light

    assert isinstance(job.settings, FeatureSettings)
    enc = encoder(job.settings, job.task)
    assert isinstance(enc.frame, BlockFrame)
    u, v = (enc.coordinates(x).numpy() for x in (made.x, as_floats(dataset.x_test)))
    y, labels = made.hard_y.numpy(), dataset.y_test.numpy()
    places = {part.kind: place for part, place in zip(parts, enc.frame.places())}
    found: dict[str, Any] = {"records": len(y), "together": multimodal.learnt(u, y, v, labels)}
    found |= {kind: multimodal.learnt(u[:, place], y, v[:, place], labels) for kind, place in places.items()}
    if "text" in places:
        own, real = parts.texts(made.tensors["x"].numpy()), parts.texts(dataset.x_test.numpy())
        found["words"] = multimodal.learnt_texts(own, y, real, labels)
    if {"text", "image"} <= places.keys():
        left, right = places["image"], places["text"]
        there = v[:, left].any(1) & v[:, right].any(1)
        found["retrieval"] = multimodal.retrieval(u[:, left], u[:, right], y, v[there][:, left], v[there][:, right])
    return found


def columns_of(job: Job, dataset: Dataset) -> Columns:
    """The columns as they are declared; numbers where nothing is."""
    known = words(dataset.schema) if dataset.schema is not None else declared_words(job.task.data)
    return Columns.parse(known or ["n"] * job.task.shape[0])
