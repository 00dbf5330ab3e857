"""How well an attacker tells members from others, with limits; and how well differential privacy lets anyone do it.

Scores are numbers where larger means "member". Rates at a low false-positive rate say more than an average: an attack
that names ten people with certainty harms them even if its AUC is 0.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prismfl.adversary.scores import Found, Scored
from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost

Scores = npt.NDArray[np.float64]
LOW_RATES = (0.01, 0.001)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Roc:
    """False- and true-positive rates from (0, 0) to (1, 1), one point a distinct threshold."""

    fpr: Scores
    tpr: Scores


@dataclass(frozen=True)
class Rate:
    """A true-positive rate at a false-positive rate, with an exact binomial interval."""

    fpr: float
    tpr: float
    low: float
    high: float


@dataclass(frozen=True)
class Membership:
    """The result of a membership attack; `as_dict` is its JSON form."""

    auc: float
    auc_low: float
    auc_high: float
    rates: tuple[Rate, ...]
    members: int
    others: int
    roc: Roc

    def as_dict(self, points: int = 200) -> dict[str, Any]:
        """The rounded numbers by name, with at most `points` points of the curve."""
        fpr, tpr = thin(self.roc, points)
        return {
            "auc": round(self.auc, 4),
            "auc_low": round(self.auc_low, 4),
            "auc_high": round(self.auc_high, 4),
            "rates": [{k: round(v, 5) for k, v in rate.__dict__.items()} for rate in self.rates],
            "members": self.members,
            "others": self.others,
            "roc": {"fpr": [round(float(v), 6) for v in fpr], "tpr": [round(float(v), 6) for v in tpr]},
        }


def measure(members: npt.ArrayLike, others: npt.ArrayLike) -> Membership:
    """Everything there is to say about the scores of members and of others."""
    a, b = _checked("members", members), _checked("others", others)
    area = auc(a, b)
    low, high = auc_interval(area, len(a), len(b))
    curve = roc(a, b)
    return Membership(area, low, high, tuple(rate_at(a, b, f) for f in LOW_RATES), len(a), len(b), curve)


def roc(members: Scores, others: Scores) -> Roc:
    """The curve of all thresholds; equal scores fall under one threshold together."""
    scores = np.concatenate([members, others])
    truth = np.concatenate([np.ones(len(members)), np.zeros(len(others))])
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # equal scores fall under one threshold together
    hits, alarms = np.cumsum(truth[order])[last], np.cumsum(1 - truth[order])[last]
    return Roc(np.append(0.0, alarms / len(others)), np.append(0.0, hits / len(members)))


def auc(members: Scores, others: Scores) -> float:
    """The chance that a member scores above another record, ties counting half."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    n, m = len(members), len(others)
    return float((ranks.sum() - n * (n + 1) / 2) / (n * m))


def auc_interval(area: float, members: int, others: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Newcombe's (2006) score interval: stays in [0, 1] and has a width even where the attack is perfect."""
    from scipy.stats import norm

    z, spread = float(norm.ppf(0.5 + confidence / 2)), (members + others) / 2 - 1

    def off(theta: float) -> float:
        inner = 1 + spread * (1 - theta) / (2 - theta) + spread * theta / (1 + theta)
        return abs(area - theta) - z * math.sqrt(max(0.0, theta * (1 - theta) * inner / (members * others)))

    return _edge(off, inside=area, outside=0.0), _edge(off, inside=area, outside=1.0)


def rate_at(members: Scores, others: Scores, fpr: float) -> Rate:
    """The largest true-positive rate whose false-positive rate is at most `fpr`."""
    curve = roc(members, others)
    tpr = float(curve.tpr[curve.fpr <= fpr + 1e-12].max())
    low, high = binomial_interval(round(tpr * len(members)), len(members))
    return Rate(fpr, tpr, low, high)


def binomial_interval(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Clopper and Pearson's exact interval."""
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1 - tail, hits + 1, trials - hits))
    return low, high


def thin(curve: Roc, points: int) -> tuple[Scores, Scores]:
    """At most `points` corners of a curve, dense at low false-positive rates, where it matters."""
    if len(curve.fpr) <= points:
        return curve.fpr, curve.tpr
    wanted = np.concatenate([np.geomspace(1e-4, 1.0, points // 2), np.linspace(0.0, 1.0, points // 2)])
    keep = np.unique(np.clip(np.searchsorted(curve.fpr, wanted, side="right") - 1, 0, None))
    keep = np.unique(np.concatenate([[0], keep, [len(curve.fpr) - 1]]))
    return curve.fpr[keep], curve.tpr[keep]


# Against the truth


@dataclass(frozen=True)
class Members:
    """The truth of a membership attack: so many of the candidates, the first, were used; at so high a cost, if any.

    Of the control's candidates the first `known` were.
    """

    members: int
    known: int
    cost: Cost | None
    delta: float


def told_apart(guess: Scores, control: Scores | None, truth: Members) -> Scored:
    """How well members were told from others, beside the run's bound and the control."""
    n, k = truth.members, truth.known
    area = None if control is None else auc(control[:k], control[k:])
    return Scored(judged(guess[:n], guess[n:], truth.cost, delta=truth.delta, control=area))


def judged(members: Scores, others: Scores, cost: Cost | None, *, delta: float, control: float | None) -> Found:
    """A result beside the bound of the run's cost; `within_bound` is None where there is no bound."""
    result = measure(members, others)
    found: Found = {"kind": "membership", **result.as_dict(), "within_bound": None}
    if control is not None:
        found["control"] = {"auc": round(control, 4)}
    if cost is None or not cost.private:
        return found
    rates = [0.0, *np.geomspace(1e-3, 1.0, 40).tolist()]
    allowed = limits(cost, delta)
    found["bound"] = {"fpr": rates, "tpr": [round(float(v), 6) for v in bound_of(cost, rates)]}
    found["allowed_auc"] = allowed["auc"]
    # Chance must not explain it: the lower end of what was found against the bound at the upper end of the alarms.
    alarms = [binomial_interval(int(rate.fpr * len(others)), len(others))[1] for rate in result.rates]
    most = bound_of(cost, alarms)
    found["within_bound"] = bool(
        result.auc_low <= (allowed["auc"] or 0.0)
        and all(rate.low <= limit for rate, limit in zip(result.rates, most.tolist()))
    )
    return found


@dataclass(frozen=True)
class Originals:
    """The truth of a search for copies: so many of the candidates, the first, were used to make a synthetic set."""

    members: int
    synthetic: int


def copied(pairs: torch.Tensor, control: torch.Tensor | None, truth: Originals) -> Scored:
    """How many synthetic records copy a member, and how many a record that was never used."""

    def count(found: torch.Tensor, *, member: bool) -> int:
        return len(torch.unique(found[(found[:, 1] < truth.members) == member, 0]))

    of_members, of_others, made = count(pairs, member=True), count(pairs, member=False), truth.synthetic
    found: Found = {
        "kind": "copies",
        "copies_of_members": of_members,
        "copies_of_others": of_others,
        "synthetic": made,
    }
    if control is not None:
        found["control"] = {"copies": count(control, member=True), "of": truth.members}
    found["words"] = f"{of_members} of {made} synthetic records copy a member, {of_others} copy a record never used"
    return Scored(found)


def shown(found: Found) -> dict[str, str]:
    """A row for people."""
    name = found["attack"]
    if "auc" not in found:
        blank = dict.fromkeys(("AUC", "TPR at 1 %", "allowed", "control"), "-")
        return {"attack": name, **blank, "verdict": found["words"]}
    words = {True: "within the bound", False: "ABOVE the bound", None: "no bound: no guarantee"}
    return {
        "attack": name,
        "AUC": f"{found['auc']:.3f} ({found['auc_low']:.3f} to {found['auc_high']:.3f})",
        "TPR at 1 %": f"{100 * found['rates'][0]['tpr']:.1f} %",
        "allowed": f"{found['allowed_auc']:.3f}" if "allowed_auc" in found else "-",
        "control": f"{found['control']['auc']:.3f}" if "control" in found else "-",
        "verdict": words[found["within_bound"]],
    }


# What differential privacy allows


def bound(epsilon: float, delta: float, fpr: npt.ArrayLike) -> Scores:
    """The largest true-positive rate that (epsilon, delta) allows at each false-positive rate."""
    rates = np.asarray(fpr, dtype=np.float64)
    if math.isinf(epsilon):
        return np.ones_like(rates)
    straight = math.exp(min(epsilon, 700.0)) * rates + delta
    turned = 1 - math.exp(-epsilon) * (1 - delta - rates)
    return np.clip(np.minimum(straight, turned), 0.0, 1.0)


def bound_of(cost: Cost, fpr: npt.ArrayLike, *, points: int = 25) -> Scores:
    """The same from the whole cost: the best of its (epsilon, delta) pairs at each rate, which is much tighter."""
    rates = np.asarray(fpr, dtype=np.float64)
    if not cost.private:
        return np.ones_like(rates)
    if cost.is_zero:
        return rates.copy()
    top = account.epsilon(cost, 1e-6)
    grid = np.concatenate([[0.0], np.linspace(top / points, top, points)])
    curves = [bound(float(e), account.delta_of(cost, float(e)), rates) for e in grid]
    return np.asarray(np.minimum.reduce(curves))


def mu_of(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that is exactly (epsilon, delta)-DP."""
    if epsilon <= 0:
        return 0.0
    return math.inf if math.isinf(epsilon) else 1.0 / account.gaussian_sigma(epsilon, delta)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta of mu-GDP at an epsilon (Dong, Roth, Su 2022, corollary 1)."""
    from scipy.stats import norm

    if mu <= 0:
        return 0.0
    return float(norm.cdf(-epsilon / mu + mu / 2) - math.exp(min(epsilon, 700)) * norm.cdf(-epsilon / mu - mu / 2))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of mu-GDP at a delta."""
    if mu <= 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def gaussian_tpr(mu: float, fpr: npt.ArrayLike) -> Scores:
    """The true-positive rate that mu-GDP allows at each false-positive rate."""
    from scipy.stats import norm

    return np.asarray(norm.cdf(norm.ppf(np.asarray(fpr, dtype=np.float64)) + mu))


def auc_bound(mu: float) -> float:
    """The largest AUC that mu-GDP allows: Phi(mu / sqrt 2)."""
    from scipy.stats import norm

    return float(norm.cdf(mu / math.sqrt(2)))


def limits(cost: Cost, delta: float) -> dict[str, float | None]:
    """What a cost allows the best attacker in the world, for people: AUC, chance of a right guess, low rates.

    The area is an upper sum, so it is never too small.
    """
    rates = np.unique(np.concatenate([[0.0], np.geomspace(1e-4, 1, 100), np.linspace(0, 1, 2001)]))
    allowed, low = bound_of(cost, rates), bound_of(cost, LOW_RATES)
    epsilon = account.epsilon(cost, delta)
    return {
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "delta": delta,
        "auc": 0.5 if cost.is_zero else float((np.diff(rates) * allowed[1:]).sum()),
        "right_guess": (1 + account.delta_of(cost, 0.0)) / 2,
        **{f"tpr_at_{rate:g}": float(value) for rate, value in zip(LOW_RATES, low)},
    }


def _edge(off: Any, *, inside: float, outside: float) -> float:
    """Where `off` crosses zero between a point inside the interval and the end of the range."""
    if off(outside) <= 0 or inside == outside:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if off(middle) <= 0 else (inside, middle)
    return inside


def _checked(name: str, scores: npt.ArrayLike) -> Scores:
    found = np.asarray(scores, dtype=np.float64).ravel()
    if not len(found):
        raise UserError(f"Expected at least one score of {name}, got none.")
    if np.isnan(found).any():
        raise UserError(
            f"Expected numbers as scores of {name}, got NaN in {int(np.isnan(found).sum())} of {len(found)}."
        )
    return found
