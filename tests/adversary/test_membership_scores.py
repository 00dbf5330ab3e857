"""The scorer against hand-computed numbers, and the bounds against what is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prismfl.adversary.scores import membership as m
from prismfl.errors import UserError
from prismfl.privacy.cost import Cost


def test_auc_and_roc_by_hand() -> None:
    members, others = np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0])
    # Pairs: 3>2, 3>0, 2=2 (half), 2>0, 1<2, 1>0 -> 4.5 of 6.
    assert m.auc(members, others) == pytest.approx(0.75)
    curve = m.roc(members, others)
    assert curve.fpr.tolist() == pytest.approx([0, 0, 0.5, 0.5, 1.0])
    assert curve.tpr.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1.0, 1.0])


def test_equal_scores_fall_under_one_threshold() -> None:
    """All scores equal is no attack at all; sorting members first must not make it one."""
    found = m.measure(np.zeros(50), np.zeros(50))
    assert found.auc == 0.5
    assert found.rates[0].tpr == 0.0


def test_rates_at_low_false_positive_rates() -> None:
    others, members = np.arange(1000.0), np.concatenate([np.full(30, 2000.0), np.full(20, 995.5), np.full(50, -1.0)])
    found = m.measure(members, others)
    assert found.rates[0].tpr == pytest.approx(0.5)  # 4 of 1000 alarms: 0.4 %
    assert found.rates[1].tpr == pytest.approx(0.3)
    assert found.rates[0].low < 0.5 < found.rates[0].high


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, hits, truth = np.random.default_rng(0), 0, float(m.auc_bound(1.0))
    for _ in range(300):
        low, high = m.auc_interval(m.auc(rng.normal(1, 1, 60), rng.normal(0, 1, 60)), 60, 60)
        hits += low <= truth <= high
    assert 0.91 <= hits / 300 <= 0.99
    assert m.auc_interval(1.0, 20, 20)[0] < 0.97  # a perfect score on few records is not certainty


@pytest.mark.parametrize(("epsilon", "area"), [(0.5, 0.540), (1, 0.575), (2, 0.639), (4, 0.743), (8, 0.881)])
def test_auc_that_a_gaussian_guarantee_allows(epsilon: float, area: float) -> None:
    assert m.auc_bound(m.mu_of(epsilon, 1e-5)) == pytest.approx(area, abs=6e-4)


def test_epsilon_and_mu_are_inverse() -> None:
    for epsilon in (0.3, 1.0, 6.0):
        assert m.gaussian_epsilon(m.mu_of(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-4)


def test_the_bound_of_a_cost_is_that_of_its_gaussian_and_tighter_than_one_pair() -> None:
    rates, cost = np.array([0.001, 0.01, 0.1, 0.5]), Cost.gaussian(1.0)
    exact = m.gaussian_tpr(1.0, rates)
    whole = m.bound_of(cost, rates)
    assert np.all(whole >= exact - 1e-6)
    assert whole == pytest.approx(exact, rel=0.03)
    pair = m.bound(m.gaussian_epsilon(1.0, 1e-5), 1e-5, rates)
    assert np.all(pair >= whole - 1e-9)
    assert m.limits(cost, 1e-5)["auc"] == pytest.approx(m.auc_bound(1.0), abs=2e-3)


def test_bounds_at_the_ends() -> None:
    assert m.bound(math.inf, 1e-5, [0.0, 0.5]).tolist() == [1.0, 1.0]
    assert m.bound_of(Cost.non_private(), [0.0]).tolist() == [1.0]
    assert m.bound_of(Cost.zero(), [0.3]).tolist() == [0.3]
    assert m.limits(Cost.zero(), 1e-5)["right_guess"] == 0.5


def test_json_form_is_small_and_keeps_the_ends() -> None:
    rng = np.random.default_rng(0)
    found = m.measure(rng.normal(1, 1, 5000), rng.normal(0, 1, 5000)).as_dict(points=100)
    assert len(found["roc"]["fpr"]) <= 110
    assert (found["roc"]["fpr"][0], found["roc"]["tpr"][-1]) == (0.0, 1.0)


def test_bad_scores_are_refused() -> None:
    with pytest.raises(UserError, match="at least one score of others"):
        m.measure([1.0], [])
    with pytest.raises(UserError, match="NaN in 1 of 2"):
        m.measure([1.0, math.nan], [0.0])
