"""What a finished model says of records: a line a record, as CSV or JSON lines, and its scores if asked for."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import torch

from prismfl.data.unseen import UNKNOWN, Form, Unseen, open_unseen
from prismfl.errors import UserError
from prismfl.metrics.classification import classifier_scores
from prismfl.runs.fitted import FittedModel, probabilities

FORMATS = ("csv", "jsonl")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Told:
    """How many records were classified, why others were not, and the scores on those with a label if asked for."""

    model: str
    records: int
    left_out: dict[str, int]
    scores: dict[str, Any] | None = None
    scored: int = 0


def format_of(out: Path | None, fmt: str | None) -> str:
    """csv or jsonl: as is said, else as the file's name ends, else csv."""
    ending = "" if out is None else out.suffix.lower().lstrip(".")
    found = fmt or (ending if ending in FORMATS else "csv")
    if found not in FORMATS:
        raise UserError(f"Expected --format csv or jsonl, got '{found}'.")
    return found


def predict_records(
    model: FittedModel,
    data: str,
    file: TextIO,
    *,
    fmt: str = "csv",
    score: bool = False,
    label: str | None = None,
    data_dir: str | None = None,
    progress: Progress = lambda *_: None,
) -> Told:
    """Writes a line for each record of `data` that can be read; `label` is a table's column where it has another name
    than in the run."""
    schema = model.schema
    if label is not None:
        if schema is None:
            raise UserError("Expected no --label: the run's records have no named columns.")
        schema = replace(schema, label=label)
    unseen = open_unseen(data, Form(model.shape, model.classes, schema), data_dir=data_dir)
    if score and not unseen.labelled:
        raise UserError(f"'{data}' has no labels that are classes of the run, so there is no score; leave out --score.")
    write, done = _writer(file, fmt, model.classes), 0
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for batch in unseen.batches():
        logits = model.logits(torch.from_numpy(batch.x))
        chances = probabilities(logits.numpy())
        for name, row in zip(batch.names, chances):
            write(name, model.classes[int(row.argmax())], row.tolist())
        if score:
            known = torch.from_numpy(batch.y) != UNKNOWN
            kept.append((logits[known], torch.from_numpy(batch.y)[known]))
        done += len(batch.names)
        progress("predicting", done, unseen.total)
    return _told(model, unseen, done, kept)


def _told(model: FittedModel, unseen: Unseen, done: int, kept: list[tuple[torch.Tensor, torch.Tensor]]) -> Told:
    y = torch.cat([part for _, part in kept]) if kept else torch.zeros(0)
    if not len(y):
        return Told(model.name, done, dict(unseen.left_out))
    logits = torch.cat([part for part, _ in kept])
    scores = classifier_scores(logits, y, classes=len(model.classes))
    return Told(model.name, done, dict(unseen.left_out), scores, len(y))


def _writer(file: TextIO, fmt: str, classes: Sequence[str]) -> Callable[[str, str, list[float]], None]:
    if fmt == "jsonl":

        def line(name: str, found: str, chances: list[float]) -> None:
            shares = {c: round(p, 6) for c, p in zip(classes, chances)}
            file.write(json.dumps({"record": name, "predicted": found, "probabilities": shares}) + "\n")

        return line
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["record", "predicted", *(f"p_{c}" for c in classes)])
    return lambda name, found, chances: rows.writerow([name, found, *(f"{p:.6f}" for p in chances)])
