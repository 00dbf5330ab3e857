"""Films and reports in pairs: the same label, the same trait, none used twice, the same pairs every time."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.data.paired import brightness, denies, pairs
from prismfl.data.text_sets import XrayReport


def test_pairs_share_label_and_trait_and_use_each_once() -> None:
    rng = np.random.default_rng(0)
    films = rng.integers(0, 2, 400), rng.random(400)
    reports = rng.integers(0, 2, 300), rng.random(300) < 0.3
    left, right = pairs(films, reports, (40, 61), seed=0)
    assert len(left) == len(set(left.tolist())) == len(set(right.tolist())) == 101
    assert (films[0][left] == reports[0][right]).all()
    assert np.bincount(films[0][left]).tolist() == [40, 61]
    for label in (0, 1):
        mine = films[0][left] == label
        light, trait = films[1][left][mine], reports[1][right][mine]
        assert light[trait].min() > light[~trait].max()
    assert (pairs(films, reports, (40, 61), seed=0)[0] == left).all()
    assert (pairs(films, reports, (40, 61), seed=1)[0] != left).any()
    with pytest.raises(AssertionError, match="fewer than 400"):
        pairs(films, reports, (400, 10), seed=0)


def test_only_the_middle_of_a_film_counts() -> None:
    films = np.zeros((2, 8, 8), dtype=np.uint8)
    films[0, 3, 3] = 32
    films[1, 0, 0] = 255
    assert brightness(films).tolist() == [2.0, 0.0]


def test_a_report_denies_by_name() -> None:
    texts = ["No pleural effusion.", "No focal opacity. Small effusion.", "Lungs without pneumothorax.", "Clear."]
    assert denies([XrayReport(text, ()) for text in texts]).tolist() == [True, False, True, False]
