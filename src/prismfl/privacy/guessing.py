"""What a budget means to somebody who guesses: how often they can be right, in one number."""

from __future__ import annotations

import math


def most_right(epsilon: float, delta: float) -> float:
    """The largest share of right guesses whether a unit is among the data, of anybody to whom both were equally likely.

    Under (epsilon, delta)-DP each guess "yes" is at most exp(epsilon) times as likely where the unit is in than where
    it is not, plus delta, and so is each "no" the other way round: exp(epsilon) / (1 + exp(epsilon)) + delta at most.
    """
    return min(1.0, 1 / (1 + math.exp(-epsilon)) + delta)


def guess_words(epsilon: float, delta: float, unit: str) -> str:
    """The same in a sentence."""
    what = "a record" if unit == "record" else f"a person ({unit})"
    return (
        f"epsilon {epsilon:g}: who would tell by the toss of a coin whether {what} is among your data is right at most "
        f"{100 * most_right(epsilon, delta):.3g} % of the time, whatever else they know"
    )
