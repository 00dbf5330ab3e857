"""From guesses to epsilon: lower bounds that hold with a stated confidence.

- One run (Steinke, Nasr, Jagielski 2023): of m canaries, each in or out by a coin, r were guessed and v rightly.
- One run, f-DP (Mahloujifar, Melis, Chaudhuri 2024): the same counts against a whole trade-off curve.
- Two worlds: scores of many runs with and of many runs without one record.
- Means and spreads: mu of two samples with limits, if they are Gaussian; for one mechanism in two worlds, or for the
  canaries of one run (Andrew et al. 2023), where it is an estimate and no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from prismfl.adversary.scores.membership import binomial_interval, bound_of, gaussian_epsilon
from prismfl.privacy.cost import Cost

Floats = npt.NDArray[np.float64]
Shrink = Callable[[float], float]  # probability in one world -> the least it can be in the other
NORMAL = NormalDist()
MOST_EPSILON, MOST_MU = 60.0, 20.0


@dataclass(frozen=True)
class Guesses:
    """How many canaries there were, how many were guessed, how many of those rightly."""

    canaries: int
    made: int
    right: int


def guess(scores: Floats, truth: npt.NDArray[np.bool_], made: int) -> Guesses:
    """The `made` scores farthest from 0 are guessed, in if above it and out if below; the rest abstain."""
    chosen = np.argsort(-np.abs(scores), kind="stable")[:made]
    return Guesses(len(scores), made, int(((scores > 0) == truth)[chosen].sum()))


def one_run_p_value(g: Guesses, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are at most, if the method is (epsilon, delta)-DP."""
    from scipy.stats import binom

    chance = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(g.right - 1, g.made, chance))
    if delta == 0.0:
        return tail
    # P[v - i <= Bin < v] over i, the worst of which delta can shift.
    below = binom.pmf(np.arange(g.right - 1, -1, -1), g.made, chance)
    tail_sums = np.cumsum(below)
    worst = float((tail_sums / np.arange(1, len(tail_sums) + 1)).max()) if g.right else 0.0
    return min(1.0, tail + 2.0 * g.canaries * delta * worst)


def one_run_epsilon(g: Guesses, delta: float, *, alpha: float) -> float:
    """The largest epsilon that the guesses rule out."""
    if one_run_p_value(g, 0.0, delta) > alpha:
        return 0.0
    return _largest(lambda e: one_run_p_value(g, e, delta) <= alpha, MOST_EPSILON)


def rejects(g: Guesses, shrink: Shrink, *, alpha: float) -> bool:
    """Whether the guesses rule out a trade-off curve.

    If c right guesses of r had a probability of at least alpha, the curve would force fewer right guesses to be so
    likely that the shares of right and wrong ones added up to more than r / m, which they cannot.
    """
    m, c = g.canaries, g.right
    right, wrong = alpha * c / m, alpha * (g.made - c) / m
    for i in range(c - 1, -1, -1):
        less = max(wrong, shrink(right))
        right += i / (m - i) * (less - wrong)
        wrong = less
        if right + wrong > g.made / m:
            return True
    return right + wrong > g.made / m


def gaussian_shrink(mu: float) -> Shrink:
    """The trade-off curve of mu-Gaussian differential privacy."""

    def shrink(p: float) -> float:
        if p <= 0.0:
            return 0.0
        return 1.0 if p >= 1.0 else NORMAL.cdf(NORMAL.inv_cdf(p) - mu)

    return shrink


def cost_shrink(cost: Cost) -> Shrink:
    """The trade-off curve of a cost, read backwards: the false-positive rate that a true-positive rate needs."""
    fpr = np.concatenate([[0.0], np.geomspace(1e-9, 1e-3, 200), np.linspace(1e-3, 1.0, 4000)[1:]])
    tpr = np.maximum.accumulate(bound_of(cost, fpr))

    def shrink(p: float) -> float:
        # The grid point below: never more than the curve demands.
        return float(fpr[max(0, int(np.searchsorted(tpr, p, side="left")) - 1)])

    return shrink


def one_run_mu(g: Guesses, *, alpha: float) -> float:
    """The largest mu for which the guesses rule out mu-GDP."""
    if not rejects(g, gaussian_shrink(0.0), alpha=alpha):
        return 0.0
    return _largest(lambda mu: rejects(g, gaussian_shrink(mu), alpha=alpha), MOST_MU)


@dataclass(frozen=True)
class OneRun:
    """Lower bounds from one run: epsilon by counting, and mu (as an epsilon at delta) by the trade-off curve."""

    epsilon: float
    mu: float
    epsilon_of_mu: float
    guesses: Guesses


def one_run(scores: Floats, truth: npt.NDArray[np.bool_], *, delta: float, confidence: float = 0.95) -> OneRun:
    """The best over a few fixed numbers of guesses; the confidence is shared out among them and the two bounds."""
    m = len(scores)
    counts = sorted({m, m // 2, m // 5, m // 10}, reverse=True)
    alpha = (1 - confidence) / (2 * len(counts))
    tried = [guess(scores, truth, made) for made in counts if made >= 2]
    epsilon, mu = (max(bound(g) for g in tried) for bound in (_epsilon_bound(delta, alpha), _mu_bound(alpha)))
    return OneRun(epsilon, mu, gaussian_epsilon(mu, delta), tried[0])


def curve_rejected(scores: Floats, truth: npt.NDArray[np.bool_], cost: Cost, *, confidence: float = 0.95) -> bool:
    """Whether one run rules out the claimed cost itself."""
    if not cost.private:
        return False
    m = len(scores)
    counts = sorted({m, m // 2, m // 5, m // 10}, reverse=True)
    shrink = cost_shrink(cost)
    alpha = (1 - confidence) / len(counts)
    return any(rejects(guess(scores, truth, made), shrink, alpha=alpha) for made in counts if made >= 2)


def two_worlds_epsilon(inside: Floats, outside: Floats, delta: float, *, confidence: float = 0.95) -> float:
    """Epsilon from runs in two worlds: a threshold chosen on one half of the runs, judged on the other."""
    first_in, first_out = inside[::2], outside[::2]
    then_in, then_out = inside[1::2], outside[1::2]
    level = 1 - (1 - confidence) / 2  # two one-sided limits for each of two directions
    best, chosen = -1.0, (0.0, 1)
    for threshold in np.unique(np.concatenate([first_in, first_out])):
        for sign in (1, -1):
            value = _pair_epsilon(first_in, first_out, float(threshold), sign, delta, level)
            if value > best:
                best, chosen = value, (float(threshold), sign)
    return max(0.0, _pair_epsilon(then_in, then_out, *chosen, delta, level))


def _pair_epsilon(inside: Floats, outside: Floats, threshold: float, sign: int, delta: float, level: float) -> float:
    """log((TPR - delta) / FPR) at the unfavourable ends of exact intervals; `sign` -1 looks at the other tail."""
    a, b = (inside >= threshold, outside >= threshold) if sign > 0 else (outside < threshold, inside < threshold)
    low = binomial_interval(int(a.sum()), len(a), level)[0]
    high = binomial_interval(int(b.sum()), len(b), level)[1]
    return math.log((low - delta) / high) if low > delta else -1.0


def mu_interval(inside: Floats, outside: Floats, *, confidence: float = 0.999) -> tuple[float, float]:
    """Mu of two Gaussian samples of one spread: the distance of the means in standard deviations, with limits."""
    n, k = len(inside), len(outside)
    spread = math.sqrt(float(inside.var(ddof=1) * (n - 1) + outside.var(ddof=1) * (k - 1)) / (n + k - 2))
    if spread == 0.0:
        return (math.inf, math.inf) if inside.mean() != outside.mean() else (0.0, 0.0)
    mu = float(abs(inside.mean() - outside.mean()) / spread)
    error = math.sqrt(1 / n + 1 / k + mu * mu / (2 * (n + k)))
    z = NORMAL.inv_cdf(0.5 + confidence / 2)
    return max(0.0, mu - z * error), mu + z * error


def noise_interval(squares: float, numbers: int, *, confidence: float = 0.999) -> tuple[float, float]:
    """Measured noise over stated noise, from the sum of squares of what should be standard normal numbers."""
    from scipy.stats import chi2

    tail = (1 - confidence) / 2
    return math.sqrt(squares / chi2.ppf(1 - tail, numbers)), math.sqrt(squares / chi2.ppf(tail, numbers))


def _epsilon_bound(delta: float, alpha: float) -> Callable[[Guesses], float]:
    return lambda g: one_run_epsilon(g, delta, alpha=alpha)


def _mu_bound(alpha: float) -> Callable[[Guesses], float]:
    return lambda g: one_run_mu(g, alpha=alpha)


def _largest(holds: Callable[[float], bool], most: float) -> float:
    """The largest value up to `most` for which a monotone test holds (it holds at 0)."""
    if holds(most):
        return most
    low, high = 0.0, most
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
