"""R2 and the mean absolute error, by hand and by their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.metrics.regression import regression_scores


def test_scores_by_hand() -> None:
    found = regression_scores(np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 5.0]))
    assert found["mae"] == pytest.approx(1 / 3, abs=1e-6)
    assert found["r2"] == pytest.approx(1 - 1 / 8, abs=1e-4)


def test_the_mean_explains_nothing() -> None:
    true = np.array([1.0, 2.0, 3.0])
    assert regression_scores(np.full(3, 2.0), true)["r2"] == 0.0


def test_values_that_are_all_the_same_have_no_r2() -> None:
    found = regression_scores(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    assert found["r2"] is None
    assert found["intervals"] == {"r2": None, "mae": None}
    assert found["mae"] == 0.5


def test_intervals_are_those_of_records_drawn_one_by_one() -> None:
    draw = np.random.default_rng(5)
    true = 1000 + draw.normal(size=300)
    predicted = true + draw.normal(size=300) / 2
    drawn = []
    for _ in range(400):
        rows = draw.integers(0, 300, 300)
        drawn.append(regression_scores(predicted[rows], true[rows])["r2"])
    found = regression_scores(predicted, true)
    assert found["intervals"]["r2"] == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.02)
    low, high = found["intervals"]["mae"]
    assert low < found["mae"] < high
