"""The classifiers that a finished run holds, by name: modules from records to logits, and how well each does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from prismfl.core.job import Job
from prismfl.core.payloads import Payload
from prismfl.data import Dataset
from prismfl.metrics.classification import classifier_scores
from prismfl.metrics.utility import Predict, logits_of
from prismfl.nets.classifier import network
from prismfl.rng import Key
from prismfl.runs.encoded import Through, looked_through, rows_of

NETWORK = "network"


class Predicts(nn.Module):
    """A method's own way to score records, as a module."""

    def __init__(self, job: Job, items: Mapping[str, Payload]) -> None:
        super().__init__()
        self.job, self.items = job, items

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits, a row a record."""
        assert self.job.method.predict is not None
        return self.job.method.predict(self.job.settings, self.job.task, self.items, x)


def models_of(job: Job, items: Mapping[str, Payload]) -> Mapping[str, nn.Module]:
    """Every model that the items of a run hold; none while there is no model."""
    if "model" not in items:
        return {}
    method, task = job.method, job.task
    if method.models is not None:
        return method.models(job.settings, task, items)
    if method.predict is not None:
        return {"model": Predicts(job, items)}
    classifier, _ = network(task, key=Key.seed(0))
    classifier.module.load_state_dict(items["model"].to(task.device))
    module = classifier.module.eval()
    return {NETWORK: Through(rows_of(task), module) if looked_through(task, method) else module}


def recommended(job: Job, models: Mapping[str, object]) -> str:
    """The name of the model to take: the one that the rehearsal chose, or the only one."""
    return next(iter(models)) if job.method.recommended is None else job.method.recommended(job.settings)


def scores_of_models(job: Job, items: Mapping[str, Payload], dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Accuracy, balanced accuracy, AUC and the recall of each class on the held-out records, for every model."""
    if not len(dataset.y_test):
        return {}
    found = {}
    for name, model in models_of(job, items).items():
        if dataset.pictures is not None and isinstance(model, Through):
            model = model.network  # the records were looked at already
        logits = logits_of(model, dataset.x_test, device=job.task.device)
        found[name] = classifier_scores(logits, dataset.y_test, classes=len(job.task.classes))
    return found


def scores_of_sites(
    job: Job, predict: Predict, own: Sequence[Mapping[str, Payload]], dataset: Dataset
) -> dict[str, Any] | None:
    """The scores of models that stay at the sites, over all their answers; None where none has a model or a record.

    Every site answers for the same held-out records, so several have no interval: it would be too narrow.
    """
    held = [items for items in own if "model" in items]
    if not held or not len(dataset.y_test):
        return None
    logits = [logits_of(partial(predict, items), dataset.x_test) for items in held]
    scores = classifier_scores(torch.cat(logits), dataset.y_test.repeat(len(held)), classes=len(job.task.classes))
    return scores if len(held) == 1 else {**scores, "intervals": dict.fromkeys(scores["intervals"])}
