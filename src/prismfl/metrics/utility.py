"""How useful the outcome is: accuracy, balanced accuracy, AUC and recall of a model on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from prismfl.core.payloads import Payload
from prismfl.core.records import as_floats
from prismfl.kernels.parts import in_parts
from prismfl.stages import track

Predict = Callable[[Mapping[str, Payload], torch.Tensor], torch.Tensor]


def accuracy(predict: Predict, items: Mapping[str, Payload], x: torch.Tensor, y: torch.Tensor) -> float | None:
    """Percent of held-out records whose largest score is their label; None while there is no model or no record."""
    if "model" not in items or not len(x):
        return None
    guess = _scored(lambda part: predict(items, part).argmax(1).cpu(), x)
    return 100.0 * int((guess == y).sum()) / len(x)


def logits_of(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *, device: str = "cpu") -> torch.Tensor:
    """A model's scores of records, some at a time."""
    return _scored(lambda part: model(part.to(device)).cpu(), x)


def _scored(score: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    parts = track(in_parts(x, 500), "scoring held-out records", len(x), each=len)
    with torch.no_grad():
        return torch.cat([score(as_floats(part)) for part in parts])


def classifier_scores(logits: torch.Tensor, y: torch.Tensor, *, classes: int) -> dict[str, Any]:
    """In percent: accuracy, balanced accuracy (the mean recall), and AUC, one class against the others, averaged.

    Classes without a held-out record have no recall (None) and stay out of the means.
    """
    guess, probabilities = logits.argmax(1), torch.softmax(logits.double(), 1)
    recall: list[float | None] = []
    areas = []
    for c in range(classes):
        own = y == c
        recall.append(100.0 * float((guess[own] == c).double().mean()) if bool(own.any()) else None)
        if bool(own.any()) and not bool(own.all()):
            areas.append(_area(probabilities[:, c], own))
    known = [value for value in recall if value is not None]
    return {
        "accuracy": round(100.0 * float((guess == y).double().mean()), 4),
        "balanced_accuracy": round(sum(known) / len(known), 4),
        "auc": round(100.0 * sum(areas) / len(areas), 4) if areas else None,
        "recall": [None if value is None else round(value, 4) for value in recall],
    }


def _area(scores: torch.Tensor, positive: torch.Tensor) -> float:
    """How often a positive record scores above a negative one; a tie counts half."""
    from scipy.stats import rankdata

    ranks, count = rankdata(scores.numpy()), int(positive.sum())
    above = float(ranks[positive.numpy()].sum()) - count * (count + 1) / 2
    return above / (count * (len(scores) - count))
