"""A synthetic table judged as its users judge it: by models that are trained on it and tested on real records, and by
how far its tables of one, two and three columns are from real ones.

All of this sees held-out real records: it measures a benchmark, and never leaves a site that has private ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.errors import UserError
from prismfl.metrics.classification import classifier_scores
from prismfl.metrics.regression import regression_scores
from prismfl.metrics.tables import correlation_distance
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables

Array = npt.NDArray[Any]
LOGISTIC, LINEAR, BOOSTED = "logistic regression", "linear regression", "boosted trees"
KEPT = ("accuracy", "balanced_accuracy", "f1", "auc", "average_precision", "positive", "unbalanced", "intervals")
BINS = 10
MOST_TABLES = 300  # of so many pairs or triples the distance is measured, drawn by a fixed seed
MOST_RECORDS = 50_000  # that a model is trained on, and that tables are counted from
RARE = 0.05
LEAST = 1e-9


def useful(x: torch.Tensor, y: torch.Tensor, at: torch.Tensor, labels: torch.Tensor, *, classes: int) -> dict[str, Any]:
    """Scores on real records `at` of models that were trained on the synthetic ones."""
    if not len(x) or not len(at):
        raise UserError(f"Expected synthetic and real records, got {len(x)} and {len(at)}.")
    train, told = x[:MOST_RECORDS].flatten(1).numpy(), y[:MOST_RECORDS].numpy()
    real = at.flatten(1).numpy()
    found = {}
    for name in (LOGISTIC, BOOSTED):
        logits = torch.from_numpy(np.log(np.maximum(_shares(name, train, told, real, classes), LEAST)))
        scores = classifier_scores(logits, labels, classes=classes)
        found[name] = {key: scores[key] for key in KEPT}
    return found


def useful_number(x: Array, told: Array, at: Array, true: Array) -> dict[str, Any]:
    """R2 and MAE on real records `at` of models that learnt the number `told` from the synthetic ones `x`.

    Records without the number (NaN) say nothing of it; where none is left, on either side, there are no scores.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression

    known, held = (~np.isnan(values) for values in (told, true))
    x, told, at, true = x[known][:MOST_RECORDS], told[known][:MOST_RECORDS], at[held], true[held]
    if not len(x) or not len(at):
        return {}
    models = {LINEAR: LinearRegression(), BOOSTED: HistGradientBoostingRegressor(random_state=0)}
    return {name: regression_scores(model.fit(x, told).predict(at), true) for name, model in models.items()}


def faithful(
    x: torch.Tensor, y: torch.Tensor, at: torch.Tensor, labels: torch.Tensor, *, columns: Columns, classes: int
) -> dict[str, float | None]:
    """Distances from real records: total variation of tables of one, two and three columns (0 is equal, 1 is disjoint),
    mean gap of correlations, and the part of the real records' rare categories that are there at all."""
    variables = Variables.of(columns, bins=BINS, labels=classes)
    made, real = (
        variables.codes(part[:MOST_RECORDS].flatten(1), told[:MOST_RECORDS]).numpy()
        for part, told in ((x, y), (at, labels))
    )
    found: dict[str, float | None] = {
        f"tv_{size}": _distance(made, real, variables.sizes, size) for size in (1, 2, 3) if size <= len(variables)
    }
    own, theirs = (part[:MOST_RECORDS].flatten(1).double().numpy() for part in (x, at))
    found["correlations"] = correlation_distance(theirs, own)
    found["rare_categories"] = _rare(made, real, variables)
    return {name: None if value is None else round(value, 5) for name, value in found.items()}


def _shares(name: str, x: Array, y: Array, at: Array, classes: int) -> Array:
    """Probabilities of each class by a model of this name. Of one class alone there is nothing to learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    share, known = np.zeros((len(at), classes)), np.unique(y)
    if len(known) == 1:
        share[:, known] = 1.0
        return share
    model = LogisticRegression(max_iter=500) if name == LOGISTIC else HistGradientBoostingClassifier(random_state=0)
    share[:, known] = model.fit(x, y).predict_proba(at)
    return share


def _distance(made: Array, real: Array, sizes: Sequence[int], size: int) -> float:
    """The mean total variation distance of tables of so many columns."""
    every = list(combinations(range(len(sizes)), size)) if comb(len(sizes), size) <= 200_000 else []
    draw = np.random.default_rng(0)
    if len(every) > MOST_TABLES:
        every = [every[i] for i in sorted(draw.choice(len(every), MOST_TABLES, replace=False))]
    elif not every:
        every = [tuple(sorted(draw.choice(len(sizes), size, replace=False))) for _ in range(MOST_TABLES)]
    return float(np.mean([_gap(made, real, sizes, columns) for columns in every]))


def _gap(made: Array, real: Array, sizes: Sequence[int], columns: Sequence[int]) -> float:
    """By the cells that are there: a table of three columns may have more cells than there is room for."""
    wide = [sizes[k] for k in columns]
    own, theirs = (np.ravel_multi_index([part[:, k] for k in columns], wide) for part in (made, real))
    cells, at = np.unique(np.concatenate([own, theirs]), return_inverse=True)
    mine = np.bincount(at[: len(own)], minlength=len(cells)) / len(own)
    other = np.bincount(at[len(own) :], minlength=len(cells)) / len(theirs)
    return 0.5 * float(np.abs(mine - other).sum())


def _rare(made: Array, real: Array, variables: Variables) -> float | None:
    """The part of the rare categories (and missing values) of real records that a synthetic record has."""
    there = total = 0
    for k, one in enumerate(variables.columns):
        if one.kind in "cbm":
            places = range(one.bins, one.places)
            shares = np.bincount(real[:, k], minlength=one.places)[places] / len(real)
            rare = [place for place, share in zip(places, shares) if 0 < share <= RARE]
            total += len(rare)
            there += sum(bool((made[:, k] == place).any()) for place in rare)
    return there / total if total else None
