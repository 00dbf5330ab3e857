"""What a budget means to somebody who guesses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prismfl.privacy.guessing import guess_words, most_right, percent


@pytest.mark.parametrize(("epsilon", "right"), [(0.0, 0.5), (1.0, 0.731059), (math.log(3), 0.75), (50.0, 1.0)])
def test_by_hand(epsilon: float, right: float) -> None:
    assert most_right(epsilon, 0.0) == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (0.0, 0.3), (4.0, 1e-5), (9.0, 0.5), (math.inf, 0.1)])
def test_it_is_the_largest_share_that_both_inequalities_leave(epsilon: float, delta: float) -> None:
    """By brute force over how often a guess "yes" comes where the unit is not there."""
    quiet = np.linspace(0, 1, 100_001)
    factor = math.exp(min(epsilon, 700.0))
    heard = np.minimum(np.minimum(1.0, factor * quiet + delta), 1 - (1 - quiet - delta) / factor)
    assert most_right(epsilon, delta) == pytest.approx(float((1 + (heard - quiet).max()) / 2), abs=2e-5)


def test_randomised_response_reaches_it_and_never_more() -> None:
    """The mechanism that is worst under epsilon: say the truth with probability e^eps / (1 + e^eps)."""
    rng, epsilon, n = np.random.default_rng(0), 1.5, 200_000
    truth = rng.random(n) < 0.5
    said = np.where(rng.random(n) < math.exp(epsilon) / (1 + math.exp(epsilon)), truth, ~truth)
    assert abs(float((said == truth).mean()) - most_right(epsilon, 0.0)) < 0.005


def test_in_words() -> None:
    assert [percent(share) for share in (0.5, 0.7311, 0.99967, 1.0)] == ["50.0", "73.1", "99.97", "100"]
    assert guess_words(most_right(1.0, 1e-5), "a record") == (
        "who must guess whether a record was used, knowing all else, is right at most 73.1 % of the time (a coin: "
        "50 %), however clever the attack"
    )
