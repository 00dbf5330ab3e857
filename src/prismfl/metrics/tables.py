"""Metrics for synthetic tables: usefulness by logistic regression, distinguishability, divergence, fidelity.

All take plain arrays of features (scaled by declared bounds), so they serve any synthesizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismfl.errors import UserError

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.integer]
FOLDS = 10
BINS = 20


@dataclass(frozen=True)
class Scores:
    """Accuracy, F1 and area under the ROC curve, in percent. For more than two classes F1 and AUC are macro means."""

    accuracy: float
    f1: float
    auc: float

    def __sub__(self, other: Scores) -> Scores:
        return Scores(self.accuracy - other.accuracy, self.f1 - other.f1, self.auc - other.auc)

    @classmethod
    def mean(cls, scores: Sequence[Scores]) -> Scores:
        """The mean of each score."""
        table = np.array([(s.accuracy, s.f1, s.auc) for s in scores])
        return cls(*(float(v) for v in table.mean(0)))


@dataclass(frozen=True)
class Adversarial:
    """How well a logistic regression tells real from synthetic records (percent), and what follows from it.

    `kld` is the mean divergence of the columns' histograms; `kld_sum` adds r log(r / s) over unpaired, sorted records
    without normalising, which is the scale of published tables. Each has its TLD.
    """

    accuracy: float
    f1: float
    auc: float
    kld: float
    tld: float
    kld_sum: float
    tld_sum: float


def logistic_scores(
    x_train: Floats, y_train: Labels, x_test: Floats, y_test: Labels, *, strength: float = 1.0
) -> Scores:
    """A logistic regression fitted on one table and scored on another. One class only: it predicts that class."""
    predicted, share = _fit_predict(x_train, y_train, x_test, classes=_classes(y_train, y_test), strength=strength)
    return score(y_test, predicted, share)


def score(y: Labels, predicted: Labels, share: Floats) -> Scores:
    """Scores of predictions; `share` holds one column of probabilities a class."""
    from sklearn.metrics import f1_score, roc_auc_score

    _refuse_empty(y)
    average = "binary" if share.shape[1] == 2 else "macro"
    auc = 0.5
    if len(np.unique(y)) == 2 and share.shape[1] == 2:
        auc = float(roc_auc_score(y, share[:, 1]))
    elif share.shape[1] > 2:
        auc = _macro_auc(y, share)
    f1 = float(f1_score(y, predicted, average=average, zero_division=0))
    return Scores(100.0 * float(np.mean(predicted == y)), 100.0 * f1, 100.0 * auc)


def cross_validated(x: Floats, y: Labels, *, folds: int = FOLDS, seed: int = 0) -> Scores:
    """Scores of logistic regressions over stratified folds, all predictions pooled. Fewer folds for a small class."""
    from sklearn.model_selection import StratifiedKFold

    _refuse_empty(y)
    classes = _classes(y)
    smallest = int(np.bincount(y)[np.unique(y)].min())
    folds = min(folds, smallest)
    if folds < 2:
        raise UserError(f"Expected at least 2 records of each class for cross-validation, got {smallest}.")
    predicted, share = np.zeros_like(y), np.zeros((len(y), classes))
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
        predicted[test], share[test] = _fit_predict(x[train], y[train], x[test], classes=classes)
    return score(y, predicted, share)


def adversarial(real: Floats, synthetic: Floats, *, seed: int = 0) -> Adversarial:
    """Tell as many synthetic as real records apart by 10-fold logistic regression; divergence of the columns; TLD."""
    _same_width(real, synthetic)
    size = min(len(real), len(synthetic))
    generator = np.random.default_rng(seed)
    a, b = (part[generator.permutation(len(part))[:size]] for part in (real, synthetic))
    found = cross_validated(np.concatenate([a, b]), np.repeat([0, 1], size), seed=seed)
    kld, total = divergence(a, b), divergence_sum(a, b)
    return Adversarial(found.accuracy, found.f1, found.auc, kld, turing(kld, found), total, turing(total, found))


def turing(kld: float, found: Scores) -> float:
    """Turing logistic divergence (KLD / accuracy) ^ (1 - AUC), accuracy and AUC as shares."""
    return float((kld / max(found.accuracy / 100.0, 1e-9)) ** (1.0 - found.auc / 100.0))


def divergence(real: Floats, synthetic: Floats, *, bins: int = BINS) -> float:
    """Mean over columns of KL(real || synthetic) of histograms, in nats, with half a record added to every bin."""
    _same_width(real, synthetic)
    values = []
    for r, s in zip(real.T, synthetic.T):
        p, q = _histograms(r, s, bins)
        values.append(float(np.sum(p * np.log(p / q))))
    return float(np.mean(values))


def divergence_sum(real: Floats, synthetic: Floats) -> float:
    """Mean over columns of sum r log(r / s) over sorted records scaled to [0, 1]: not a divergence of distributions,
    and growing with the number of records; given because published values are on this scale."""
    _same_width(real, synthetic)
    size = min(len(real), len(synthetic))
    low, high = real.min(0), real.max(0)
    width = np.where(high > low, high - low, 1.0)
    r, s = (np.clip((np.sort(part[:size], 0) - low) / width, 1e-7, 1.0) for part in (real, synthetic))
    return float(np.abs((r * np.log(r / s)).sum(0)).mean())


def marginal_distance(real: Floats, synthetic: Floats, *, bins: int = BINS) -> float:
    """Mean over columns of the total variation distance of histograms: 0 is equal, 1 is disjoint."""
    _same_width(real, synthetic)
    parts = [_histograms(r, s, bins, smooth=0.0) for r, s in zip(real.T, synthetic.T)]
    return float(np.mean([0.5 * np.abs(p - q).sum() for p, q in parts]))


def correlation_distance(real: Floats, synthetic: Floats) -> float:
    """Mean absolute difference of the pairwise correlations; a constant column correlates with nothing."""
    _same_width(real, synthetic)
    gap = np.abs(_correlations(real) - _correlations(synthetic))
    off = ~np.eye(len(gap), dtype=bool)
    return float(gap[off].mean()) if off.any() else 0.0


def coverage(real: Floats, synthetic: Floats, *, neighbours: int = 5, most: int = 2000, seed: int = 0) -> float:
    """Share of real records with a synthetic one inside the ball that holds their `neighbours` nearest real ones."""
    from sklearn.neighbors import NearestNeighbors

    _same_width(real, synthetic)
    generator = np.random.default_rng(seed)
    a, b = (part[generator.permutation(len(part))[:most]] for part in (real, synthetic))
    k = min(neighbours, len(a) - 1)
    if k < 1:
        raise UserError(f"Expected at least 2 real records for coverage, got {len(a)}.")
    radius = NearestNeighbors(n_neighbors=k + 1).fit(a).kneighbors(a)[0][:, -1]
    nearest = NearestNeighbors(n_neighbors=1).fit(b).kneighbors(a)[0][:, 0]
    return float(np.mean(nearest <= radius))


def _fit_predict(x: Floats, y: Labels, at: Floats, *, classes: int, strength: float = 1.0) -> tuple[Labels, Floats]:
    from sklearn.linear_model import LogisticRegression

    _refuse_empty(y)
    share = np.zeros((len(at), classes))
    known = np.unique(y)
    if len(known) == 1:
        share[:, known[0]] = 1.0
    else:
        model = LogisticRegression(C=strength, max_iter=500).fit(x, y)
        share[:, known] = model.predict_proba(at)
    return share.argmax(1), share


def _macro_auc(y: Labels, share: Floats) -> float:
    from sklearn.metrics import roc_auc_score

    present = [c for c in range(share.shape[1]) if 0 < int((y == c).sum()) < len(y)]
    return float(np.mean([roc_auc_score(y == c, share[:, c]) for c in present])) if present else 0.5


def _histograms(r: Floats, s: Floats, bins: int, *, smooth: float = 0.5) -> tuple[Floats, Floats]:
    edges = np.linspace(min(r.min(), s.min()), max(r.max(), s.max()) + 1e-9, bins + 1)
    p, q = (np.histogram(part, edges)[0].astype(np.float64) + smooth for part in (r, s))
    return p / p.sum(), q / q.sum()


def _correlations(x: Floats) -> Floats:
    spread = x.std(0)
    unit = (x - x.mean(0)) / np.where(spread > 1e-12, spread, 1.0)
    matrix: Floats = unit.T @ unit / len(x)
    return matrix


def _classes(*labels: Labels) -> int:
    return max(2, 1 + max(int(y.max()) for y in labels if len(y)))


def _refuse_empty(y: Labels) -> None:
    if not len(y):
        raise UserError("Expected records to score, got none.")


def _same_width(real: Floats, synthetic: Floats) -> None:
    if real.ndim != 2 or synthetic.ndim != 2 or real.shape[1] != synthetic.shape[1]:
        raise UserError(f"Expected tables with the same columns, got shapes {real.shape} and {synthetic.shape}.")
    if not len(real) or not len(synthetic):
        raise UserError(f"Expected records in both tables, got {len(real)} and {len(synthetic)}.")
