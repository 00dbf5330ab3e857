"""What a budget means to somebody who guesses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prismfl.privacy.guessing import guess_words, most_right


@pytest.mark.parametrize(("epsilon", "right"), [(0.0, 0.5), (1.0, 0.731059), (math.log(3), 0.75), (50.0, 1.0)])
def test_by_hand(epsilon: float, right: float) -> None:
    assert most_right(epsilon, 0.0) == pytest.approx(right, abs=1e-6)


def test_delta_is_added_and_never_more_than_certain() -> None:
    assert most_right(1.0, 0.01) == pytest.approx(0.741059, abs=1e-6)
    assert most_right(9.0, 0.5) == 1.0


def test_randomised_response_reaches_it_and_never_more() -> None:
    """The mechanism that is worst under epsilon: say the truth with probability e^eps / (1 + e^eps)."""
    rng, epsilon, n = np.random.default_rng(0), 1.5, 200_000
    truth = rng.random(n) < 0.5
    said = np.where(rng.random(n) < math.exp(epsilon) / (1 + math.exp(epsilon)), truth, ~truth)
    assert abs(float((said == truth).mean()) - most_right(epsilon, 0.0)) < 0.005


def test_in_words() -> None:
    words = guess_words(1.0, 1e-5, "record")
    assert "epsilon 1" in words
    assert "a record" in words
    assert "73.1 %" in words
    assert "patient_id" in guess_words(1.0, 1e-5, "patient_id")
