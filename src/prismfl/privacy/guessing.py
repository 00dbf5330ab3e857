"""What a budget means to somebody who guesses: how often they can be right, in one number."""

from __future__ import annotations

import math

OFTEN_LESS = "That is what epsilon promises of any run; the report says what the noise of yours allows, often less"


def most_right(epsilon: float, delta: float) -> float:
    """The largest share of right guesses whether a unit is among the data, of anybody to whom both were equally likely.

    This is what (epsilon, delta) promise of any mechanism; a run's own noise often allows less, and its report says
    how much. Each guess "yes" is at most exp(epsilon) times as likely where the unit is in as where it is not, plus
    delta, and so is each "no" the other way round: (exp(epsilon) + delta) / (exp(epsilon) + 1) at most.
    """
    rest = math.exp(-epsilon)
    return (1 + delta * rest) / (1 + rest)


def percent(share: float) -> str:
    """A share in per cent with one decimal, or with as many as tell it from certain."""
    return f"{100 * share:.1f}" if share < 0.9995 else f"{100 * share:.4g}"


def guess_words(share: float, what: str) -> str:
    """A share of right guesses in a sentence's words, the same before a run and after it."""
    return (
        f"who must guess whether {what} was used, knowing all else, is right at most {percent(share)} % of the time "
        "(a coin: 50 %), however clever the attack"
    )
