"""Synthetic records of several parts judged: what models learn from each part and from both, and whether parts fit.

Models are trained on the synthetic records alone and tested on real ones. Retrieval asks for the text that belongs to a
picture among several: by the classes that each of them speaks for, and along the directions in which the parts of
synthetic records of a class go together most. All of this sees held-out real records, as `judged` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
RIDGE = 1.0  # of the whitening of a part, in mean variances
DIRECTIONS = 3  # in which parts are compared, beyond their class
MIXED = 5  # times that pairs are mixed to see what is chance


def learnt(x: Array, y: Array, at: Array, labels: Array) -> dict[str, float]:
    """Accuracy and, of two classes, AUC (percent) on rows `at` of a linear model of rows x."""
    from sklearn.linear_model import LogisticRegression

    scale = max(float(np.sqrt(np.mean(np.square(x)))), 1e-9)
    return _scored(LogisticRegression(max_iter=500).fit(x / scale, y), at / scale, labels)


def learnt_texts(texts: Sequence[str], y: Array, at: Sequence[str], labels: Array) -> dict[str, float]:
    """The same for texts: a linear model of words and pairs of words, weighed by how rare they are (tf-idf)."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    seen = words.fit_transform(texts)
    return _scored(LogisticRegression(C=10.0, max_iter=500).fit(seen, y), words.transform(at), labels)


def _scored(model: Any, at: Any, labels: Array) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    found = {"accuracy": 100.0 * float(model.score(at, labels))}
    if len(model.classes_) == 2:
        found["auc"] = 100.0 * float(roc_auc_score(labels, model.predict_proba(at)[:, 1]))
    return {name: round(value, 2) for name, value in found.items()}


def retrieval(
    left: Array, right: Array, y: Array, at_left: Array, at_right: Array, *, among: int = 10, seed: int = 0
) -> dict[str, float]:
    """How often (percent) the fitting part is found among so many, by what synthetic pairs and their classes tell;
    `shuffled` by the same from pairs that were mixed, which is about chance."""
    rng = np.random.default_rng(seed)
    every, own = np.arange(len(at_left)), np.arange(len(right))
    others = np.stack([rng.choice(np.delete(every, i), among - 1, replace=False) for i in every])
    shown = np.concatenate([every[:, None], others], 1)
    found = {}
    for name, order in (("synthetic", own), ("shuffled", rng.permutation(own))):
        sides = [_side(rows, y, at) for rows, at in ((left, at_left), (right[order], at_right))]
        (x, at_x, p), (z, at_z, q) = sides
        often = np.bincount(y)[np.unique(y)] / len(y)
        score = np.log(np.maximum(((p / often)[:, None] * q[shown]).sum(2), 1e-12))
        a, b, common = _common(x, z, at_x, at_z, rng)
        # What two Gaussian numbers of this correlation say about each other, beyond what each is by itself.
        fit = common * a[:, None] * b[shown] - 0.5 * common**2 * (a[:, None] ** 2 + b[shown] ** 2)
        score = score + (fit / (1 - common**2)).sum(2)
        found[name] = round(100.0 * float((score.argmax(1) == 0).mean()), 2)
    return {**found, "chance": round(100.0 / among, 2)}


def _side(rows: Array, y: Array, at: Array) -> tuple[Array, Array, Array]:
    """A part beyond its class, of synthetic records and of real ones, whitened; and what it tells of a real one's."""
    from sklearn.linear_model import LogisticRegression

    scale = max(float(np.sqrt(np.mean(np.square(rows)))), 1e-9)
    told = LogisticRegression(max_iter=500).fit(rows / scale, y).predict_proba(at / scale)
    classes, code = np.unique(y, return_inverse=True)
    means = np.stack([rows[code == c].mean(0) for c in range(len(classes))])
    beyond = rows - means[code]
    values, vectors = np.linalg.eigh(beyond.T @ beyond / len(rows))
    root = vectors / np.sqrt(np.maximum(values, 0) + RIDGE * max(float(values.mean()), 1e-12))
    return beyond @ root, (at - told @ means) @ root, told


def _common(x: Array, z: Array, at_x: Array, at_z: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Real rows along the few directions in which synthetic pairs go together most (canonical correlations), as far as
    they do so more than mixed pairs."""
    turn, common, turned = np.linalg.svd(x.T @ z / len(x), full_matrices=False)
    mixed = [np.linalg.norm(x.T @ z[rng.permutation(len(z))] / len(x), 2) for _ in range(MIXED)]
    few = min(DIRECTIONS, int((common > max(mixed)).sum()))
    return at_x @ turn[:, :few], at_z @ turned[:few].T, np.minimum(common[:few], 0.95)
