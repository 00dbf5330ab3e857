"""Scores of synthetic records of several parts, on data where the answer is known."""

from __future__ import annotations

import numpy as np

from prismfl.metrics.multimodal import learnt, learnt_texts, retrieval

RNG = np.random.default_rng(0)


def test_a_model_learns_what_is_there_and_nothing_else() -> None:
    y = RNG.integers(0, 2, 300)
    x = RNG.normal(size=(300, 4)) + 3 * y[:, None]
    assert learnt(x[:200], y[:200], x[200:], y[200:])["accuracy"] > 95
    noise = RNG.normal(size=(300, 4))
    assert 30 < learnt(noise[:200], y[:200], noise[200:], y[200:])["auc"] < 70


def test_texts_are_told_apart_by_their_words() -> None:
    texts, y = ["no effusion here", "a large nodule there"] * 20, np.array([0, 1] * 20)
    found = learnt_texts(texts, y, ["effusion", "nodule"], np.array([0, 1]))
    assert found["accuracy"] == 100.0


def test_retrieval_finds_pairs_that_go_together_and_no_others() -> None:
    hidden = RNG.normal(size=(600, 3))
    left = hidden @ RNG.normal(size=(3, 6)) + 0.3 * RNG.normal(size=(600, 6))
    right = hidden @ RNG.normal(size=(3, 5)) + 0.3 * RNG.normal(size=(600, 5))
    y = np.arange(600) % 2
    found = retrieval(left[:400], right[:400], y[:400], left[400:], right[400:])
    assert found["synthetic"] > 50
    assert found["shuffled"] < 25
    assert found["chance"] == 10.0
    loose = retrieval(left[:400], RNG.normal(size=(400, 5)), y[:400], left[400:], right[400:])
    assert loose["synthetic"] < 25


def test_a_class_alone_tells_which_parts_fit() -> None:
    y = RNG.integers(0, 4, 800)
    left, right = (np.eye(4)[y] + 0.1 * RNG.normal(size=(800, 4)) for _ in range(2))
    found = retrieval(left[:400], right[:400], y[:400], left[400:], right[400:])
    assert 30 < found["synthetic"] < 46, "one of ten is of this class and found, or one of those that are of it as well"
    assert found["shuffled"] < 20
