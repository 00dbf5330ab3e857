"""Metrics of tables against hand-computed numbers and known extremes."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from prismfl.errors import UserError
from prismfl.metrics import tables

RNG = np.random.default_rng(0)
A = RNG.normal(size=(400, 3))
FAR = A + 10.0


def test_turing_divergence_of_the_published_example() -> None:
    assert tables.turing(342.06, tables.Scores(54.0, 55.61, 57.23)) == pytest.approx(15.79, abs=0.05)


def test_scores_of_a_hand_made_prediction() -> None:
    y, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    share = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.2, 0.8]])
    found = tables.score(y, predicted, share)
    assert astuple(found) == (75.0, pytest.approx(80.0), 100.0)


def test_three_classes_are_macro_means() -> None:
    y = np.array([0, 1, 2])
    found = tables.score(y, np.array([0, 1, 1]), np.eye(3))
    assert found.accuracy == pytest.approx(200 / 3)
    assert found.f1 == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert found.auc == 100.0


def test_a_separable_task_scores_full_and_one_class_is_survived() -> None:
    y = (A[:, 0] > 0).astype(int)
    assert tables.logistic_scores(A, y, A, y).accuracy > 97
    only = tables.logistic_scores(A, np.zeros(400, int), A, y)
    assert only.accuracy == pytest.approx(100 * np.mean(y == 0))
    assert only.auc == 50.0


def test_cross_validation_does_not_learn_noise() -> None:
    y = np.arange(400) % 2
    assert 40 < tables.cross_validated(A, y).accuracy < 60
    with pytest.raises(UserError, match="at least 2 records of each class"):
        tables.cross_validated(A[:5], np.array([0, 0, 0, 0, 1]))


def test_the_adversary_sees_nothing_in_equal_data_and_everything_in_other_data() -> None:
    same = tables.adversarial(A, RNG.normal(size=(400, 3)))
    assert same.auc < 62
    assert same.kld < 0.2
    other = tables.adversarial(A, FAR)
    assert other.accuracy > 99
    assert other.kld > 2
    assert other.tld == pytest.approx((other.kld / 1.0) ** (1 - other.auc / 100), rel=0.05)


def test_divergence_is_zero_for_equal_tables_and_has_a_direction() -> None:
    assert tables.divergence(A, A) == 0.0
    assert tables.divergence_sum(A, A) == 0.0
    half = np.concatenate([np.zeros((50, 1)), np.ones((50, 1))])
    most = np.concatenate([np.zeros((90, 1)), np.ones((10, 1))])
    p, q = np.array([50.5, 50.5]), np.array([90.5, 10.5])
    p, q = (np.concatenate([v, np.full(18, 0.5)]) for v in (p, q))
    p, q = p / p.sum(), q / q.sum()
    assert tables.divergence(half, most) == pytest.approx(float(np.sum(p * np.log(p / q))))
    assert tables.divergence(half, most) != pytest.approx(tables.divergence(most, half))


def test_fidelity_extremes() -> None:
    assert tables.marginal_distance(A, A) == 0.0
    assert tables.marginal_distance(A, FAR) == pytest.approx(1.0, abs=0.01)
    assert tables.correlation_distance(A, A) == 0.0
    twin = np.stack([A[:, 0], A[:, 0]], 1)
    opposite = np.stack([A[:, 0], -A[:, 0]], 1)
    assert tables.correlation_distance(twin, opposite) == pytest.approx(2.0)
    constant = np.zeros((400, 3))
    assert np.isfinite(tables.correlation_distance(A, constant))
    assert tables.coverage(A, A) == 1.0
    assert tables.coverage(A, FAR) == 0.0


@pytest.mark.parametrize("metric", [tables.divergence, tables.coverage, tables.adversarial, tables.marginal_distance])
def test_tables_that_do_not_match_are_refused(metric) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match="same columns"):
        metric(A, A[:, :2])
    with pytest.raises(UserError, match="records in both tables"):
        metric(A, A[:0])


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(UserError, match="records to score"):
        tables.logistic_scores(A[:0], np.zeros(0, int), A, np.zeros(400, int))
