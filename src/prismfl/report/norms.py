"""Gradient norms by layer on a site's records and on its images: exact numbers of records, for the site alone."""

from __future__ import annotations

from pathlib import Path

import torch

from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import as_floats
from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.rng import Key
from prismfl.runs.reopen import reopen

RECORDS = 512


def norms_by_layer(path: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Of each site's records and of its images, at the first kept round's model."""
    run = reopen(path)
    kept = [m for m in run.directory.messages() if m.file is not None]
    start = next((m for m in kept if m.direction == "down"), None)
    params = {} if start is None else run.directory.payloads(start)
    if start is None or "model" not in params:
        raise UserError(f"The run in '{path}' kept no round with a model.")
    task, data, found = run.job.task, run.dataset, {}
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    for name, rows in zip(task.sites, run.parts):
        sent = [m for m in kept if (m.direction, m.site, m.round) == ("up", name, start.round)]
        images = next(
            (p for m in sent for p in run.directory.payloads(m).values() if isinstance(p, SyntheticSet)), None
        )
        if images is not None:
            own = torch.as_tensor(rows)[:RECORDS]
            pair = ((as_floats(data.x_train[own]), data.y_train[own]), (images.x, images.hard_y))
            model = params["model"].to("cpu")
            real, made = ([float(g.norm()) for g in classifier.gradient(model, x, y).values()] for x, y in pair)
            found[name] = (real, made)
    if not found:
        raise UserError(f"The run in '{path}' kept no synthetic images.")
    return found
