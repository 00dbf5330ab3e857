"""How well a classifier does on held-out records: the scores that fit their classes, each main one with an interval.

All in percent but the Brier score and the confusion matrix. A score that the records do not define is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.metrics.bootstrap import affordable, drawn_matrices, drawn_weights, interval

Array = npt.NDArray[Any]

BINS = 15  # of confidence, for the calibration error
MOST_CELLS_KEPT = 10_000  # a larger confusion matrix is not written down
MOST_CELLS_DRAWN = 40_000


def classifier_scores(logits: torch.Tensor, y: torch.Tensor, *, classes: int) -> dict[str, Any]:
    """Every score of rows of logits against their labels.

    `f1` and `average_precision` are those of the rarer class of two (`positive`, the second one if both are as common),
    else means over the classes; `auc` is one class against the others, averaged. Classes without a held-out record have
    no recall and stay out of the means. `ece` and `brier` say whether the probabilities can be believed.
    """
    # A model that overflowed has scores too: its numbers are not, but the run that made it was paid for.
    chances, labels = torch.softmax(torch.nan_to_num(logits.double()), 1).numpy(), y.numpy().astype(np.int64)
    guess = logits.argmax(1).numpy()
    confusion = np.bincount(labels * classes + guess, minlength=classes**2).reshape(classes, classes)
    positive = None if classes != 2 else int(confusion[1].sum() <= confusion[0].sum())
    return {
        **{name: _rounded(values[0]) for name, values in _of_matrices(confusion[None], positive).items()},
        "auc": _rounded(_mean_over_classes(_area, labels, chances)),
        "average_precision": _rounded(_precision(labels, chances, positive)),
        "recall": [_rounded(value) for value in _recalls(confusion[None])[0]],
        "ece": _rounded(calibration_error(chances, labels, guess)),
        "brier": _rounded(_brier(chances, labels)),
        "confusion": confusion.tolist() if confusion.size <= MOST_CELLS_KEPT else None,
        "positive": positive,
        "records": len(labels),
        "unbalanced": is_unbalanced(confusion.sum(1)),
        "intervals": _intervals(confusion, labels, chances, positive),
    }


def is_unbalanced(counts: Array) -> bool:
    """Whether accuracy alone misleads: the rarest class has less than half of an even share of the records."""
    return bool(counts.min() * 2 * len(counts) < counts.sum())


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


def _recalls(matrices: Array) -> Array:
    """The recall of each class, a row a matrix; not a number for a class without records."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Array = 100.0 * np.diagonal(matrices, axis1=1, axis2=2) / matrices.sum(2)
    return found


def _of_matrices(matrices: Array, positive: int | None) -> dict[str, Array]:
    """Accuracy, balanced accuracy and F1 of confusion matrices, many at once."""
    right = np.diagonal(matrices, axis1=1, axis2=2)
    recalls, there = _recalls(matrices), matrices.sum(2) > 0
    asked = matrices.sum(1) + matrices.sum(2)
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = 200.0 * right / asked
        known = asked > 0  # a class that nobody has and nobody names is none of the data
        macro = np.where(known, f1, 0.0).sum(1) / known.sum(1)
        balanced = np.where(there, recalls, 0.0).sum(1) / there.sum(1)
    return {
        "accuracy": 100.0 * right.sum(1) / matrices.sum((1, 2)),
        "balanced_accuracy": balanced,
        "f1": macro if positive is None else f1[:, positive],
        "f1_macro": macro,
    }


def _area(own: Array, scores: Array) -> float:
    order = np.argsort(scores, kind="stable")
    return float(_weighted_areas(scores[order], own[order], np.ones((len(own), 1)))[0])


def _mean_over_classes(score: Any, labels: Array, chances: Array) -> float | None:
    """A score of each class against the others, averaged over the classes that have records and others beside them."""
    kept = [c for c in range(chances.shape[1]) if 0 < (labels == c).sum() < len(labels)]
    return float(np.mean([score(labels == c, chances[:, c]) for c in kept])) if kept else None


def _precision(labels: Array, chances: Array, positive: int | None) -> float | None:
    if positive is None:
        return _mean_over_classes(_average_precision, labels, chances)
    own = labels == positive
    return _average_precision(own, chances[:, positive]) if own.any() else None


def _average_precision(own: Array, scores: Array) -> float:
    """The precision at each threshold, by the recall that it adds; records of one score are named together."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)
    named, right = np.flatnonzero(last) + 1, np.cumsum(own[order])[last]
    return 100.0 * float(np.sum(np.diff(right, prepend=0) * right / named)) / float(own.sum())


def calibration_error(chances: Array, labels: Array, guess: Array) -> float:
    """The expected calibration error: how far confidence lies from being right, over bins of confidence."""
    confidence = chances[np.arange(len(guess)), guess]
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=(guess == labels) - confidence, minlength=BINS)
    return 100.0 * float(np.abs(gaps).sum()) / len(labels)


def _brier(chances: Array, labels: Array) -> float:
    """The mean squared error of the probabilities: of one class where there are two, of all where there are more."""
    wanted = np.eye(chances.shape[1])[labels]
    found = float(((chances - wanted) ** 2).sum(1).mean())
    return found / 2 if chances.shape[1] == 2 else found


def _intervals(confusion: Array, labels: Array, chances: Array, positive: int | None) -> dict[str, list[float] | None]:
    """The 95 % intervals of the main figures."""
    found: dict[str, list[float] | None] = dict.fromkeys(("accuracy", "balanced_accuracy", "f1", "auc"))
    if confusion.size <= MOST_CELLS_DRAWN:
        drawn = _of_matrices(drawn_matrices(confusion), positive)
        found |= {name: interval(drawn[name]) for name in ("accuracy", "balanced_accuracy", "f1")}
    # Of two classes both areas are the same.
    kept = [1] if positive is not None else [c for c in range(chances.shape[1]) if (labels == c).any()]
    draws = affordable(len(kept) * len(labels))
    if draws and len(np.unique(labels)) > 1:
        found["auc"] = interval(_drawn_areas(labels, chances[:, kept], kept, draws))
    return found


def _drawn_areas(labels: Array, scores: Array, classes: list[int], draws: int) -> Array:
    """The mean area of records drawn again: each class is sorted once, and each draw is a column of weights."""
    order = np.argsort(scores, axis=0, kind="stable")
    parts = []
    for weights in drawn_weights(len(labels), draws):
        areas = [
            _weighted_areas(scores[order[:, i], i], labels[order[:, i]] == c, weights[order[:, i]])
            for i, c in enumerate(classes)
        ]
        parts.append(np.mean(areas, axis=0))
    return np.concatenate(parts)


def _weighted_areas(scores: Array, own: Array, weights: Array) -> Array:
    """The area of sorted scores under many weightings: how often an own record lies above another."""
    ours = weights[own]
    weights[own] = 0
    others = np.concatenate([np.zeros_like(weights[:1]), np.cumsum(weights, axis=0, dtype=weights.dtype)])
    first, last = (np.searchsorted(scores, scores[own], side=side) for side in ("left", "right"))
    above = np.einsum("ij,ij->j", ours, others[first] + others[last], dtype=np.float64) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Array = 100.0 * above / (ours.sum(0) * others[-1].astype(np.float64))
    return found
