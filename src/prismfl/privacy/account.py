"""Epsilon of a cost, and the noise that meets a target: Google's dp-accounting behind five functions.

PLD gives the reported epsilon of a plan; RDP is the cross-check and the currency of the ledger's filter.

Replace-one. An unsampled mechanism has its sensitivity doubled. For a Poisson-sampled Gaussian the two records at
distance two, (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), are the worst case: by the joint convexity of the
hockey-stick divergence (Balle, Barthe, Gaboardi 2018) the question reduces to N(0) against a mixture of two shifted
Gaussians, and that grows with the norms of the shifts (Choquette-Choo et al. 2023, corollary 4.7), which are at most
1 and 2. A Poisson-sampled Laplace under replace-one is refused.

dp_accounting loads scipy, which takes most of a second: it is imported on first use, or in a process beside this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from typing import Any

from prismfl.errors import UserError
from prismfl.privacy import beside
from prismfl.privacy.cost import Branch, Cost, Mechanism, Relation

ORDERS: tuple[float, ...] = (
    *(round(1 + k / 20, 2) for k in range(2, 40)),
    *(round(3 + k / 10, 1) for k in range(90)),
    *(float(k) for k in range(12, 65)),
    *(float(k) for k in range(68, 129, 4)),
    *(float(k) for k in range(144, 257, 16)),
    *(float(k) for k in range(288, 513, 32)),
    640.0,
    768.0,
    896.0,
    1024.0,
)
"""The fixed Renyi orders. Ledgers store numbers per order: changing this tuple is a change of format."""

_COARSEST_STEP = 1e-3
_FINEST_STEP = 2.0**-10 * 1e-3
_MAX_POINTS = 500_000
_MOST_USES = 1_000_000
_LEAST_NOISE, _MOST_NOISE, _LEAST_RATE = 1e-6, 1e6, 1e-12
_SIGMA_RANGE = (2.0**-6, 2.0**24)


def epsilon(cost: Cost, delta: float) -> float:
    """The tight total epsilon at `delta` (PLD): infinity without a guarantee, 0 if nothing was spent. Beyond a million
    uses of a mechanism, which would take PLD minutes to hours, the upper bound by RDP."""
    check_delta(delta)
    if not cost.private:
        return math.inf
    return max(_branch_epsilon(branch, cost.relation, delta) for branch in set(cost.branches))


def delta_of(cost: Cost, epsilon: float) -> float:
    """The smallest delta for which the cost is (epsilon, delta)-DP (PLD): 1 without a guarantee."""
    if not epsilon >= 0 or math.isinf(epsilon):
        raise UserError(f"Expected a finite epsilon >= 0, got {epsilon}.")
    if not cost.private:
        return 1.0
    return max(_branch_delta(branch, cost.relation, epsilon) for branch in set(cost.branches))


def rdp_curve(cost: Cost) -> tuple[float, ...]:
    """Renyi DP at each of `ORDERS`; the worst branch per order, infinity without a guarantee."""
    if not cost.private:
        return (math.inf,) * len(ORDERS)
    curves = [_branch_rdp(branch, cost.relation) for branch in set(cost.branches)]
    return tuple(max(values) for values in zip(*curves, strict=True))


def epsilon_rdp(cost: Cost, delta: float) -> float:
    """An upper bound of epsilon at `delta` from the best order of the RDP curve."""
    check_delta(delta)
    if not cost.private:
        return math.inf
    if cost.is_zero:
        return 0.0
    offers = (rdp - rdp_room(order, 0.0, delta) for order, rdp in zip(ORDERS, rdp_curve(cost), strict=True))
    return max(0.0, min(offers))


def rdp_room(order: float, epsilon: float, delta: float) -> float:
    """The RDP at `order` that (epsilon, delta) leaves room for: the inverse of the RDP-to-DP conversion of
    Canonne, Kamath and Steinke (2020, proposition 12). Negative where the order is of no use."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


@lru_cache(maxsize=4096)
def mechanism_rdp(mechanism: Mechanism, relation: Relation) -> tuple[float, ...]:
    """Renyi DP of one use of a mechanism at each of `ORDERS`."""
    mechanism = _within_range(mechanism)
    noise = mechanism.noise / 2 if relation == "replace-one" else mechanism.noise
    if noise < _LEAST_NOISE:
        return (math.inf,) * len(ORDERS)
    if mechanism.kind == "gaussian":
        if mechanism.rate == 1:
            return tuple(order / (2 * noise * noise) for order in ORDERS)
        if relation == "replace-one":
            return _sampled_gaussian_replace_rdp(mechanism.noise, mechanism.rate)
        return _sampled_gaussian_rdp(mechanism.noise, mechanism.rate)
    if mechanism.kind == "laplace":
        _refuse_sampled_replace(mechanism, relation)
        if mechanism.rate == 1:
            return tuple(_laplace_rdp(1 / noise, order) for order in ORDERS)
        # Poisson sampling turns pure DP e into ln(1 + rate (exp(e) - 1)); any pure DP has randomised response's curve.
        pure = math.log1p(mechanism.rate * math.expm1(1 / noise)) if noise > 0.01 else 1 / noise
        return tuple(_pure_rdp(pure, order) for order in ORDERS)
    raise UserError(f"No accounting for the mechanism {mechanism.kind!r}.")


def calibrate(make_cost: Callable[[float], Cost], epsilon: float, delta: float) -> float:
    """The smallest sigma whose cost stays within (epsilon, delta), to within 1 % of epsilon.

    `make_cost(sigma)` is the cost of the whole run; its epsilon must fall as sigma grows.
    """
    target = check_epsilon(epsilon)
    check_delta(delta)

    def spent(sigma: float) -> float:
        return _epsilon_of(make_cost(sigma), delta)

    low, high = _bracket(spent, target)
    at_low, at_high = spent(low), spent(high)
    for _ in range(60):
        if at_high >= 0.99 * target:
            return high
        middle = _between(low, high, at_low=at_low, at_high=at_high, aim=0.995 * target)
        value = spent(middle)
        if value > target:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
    raise UserError(f"No sigma found for epsilon {target:g}: the cost jumps from {at_low:.4g} to {at_high:.4g}.")


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Noise over sensitivity of one unsampled Gaussian release that is exactly (epsilon, delta)-DP (add/remove)."""
    from dp_accounting import gaussian_mechanism

    check_delta(delta)
    return float(gaussian_mechanism.get_sigma_gaussian(check_epsilon(epsilon), delta))


def check_delta(delta: float) -> float:
    """The delta, if it lies between 0 and 1; otherwise an error."""
    if not 0 < delta < 1:
        raise UserError(f"Expected 0 < delta < 1, got {delta}.")
    return delta


def check_epsilon(epsilon: float) -> float:
    """The epsilon, if it is positive and finite; otherwise an error."""
    if not 0 < epsilon < math.inf:
        raise UserError(f"Expected a finite epsilon > 0, got {epsilon}.")
    return epsilon


def _epsilon_of(cost: Cost, delta: float) -> float:
    return epsilon(cost, delta)


def _bracket(spent: Callable[[float], float], target: float) -> tuple[float, float]:
    """Two sigmas, a factor of two apart, whose costs lie on either side of the target."""
    smallest, largest = _SIGMA_RANGE
    sigma = 1.0
    if spent(sigma) > target:
        while spent(sigma) > target:
            sigma *= 2
            if sigma > largest:
                raise UserError(f"No sigma reaches epsilon {target:g}: even {largest:g} spends {spent(largest):.4g}.")
        return sigma / 2, sigma
    while spent(sigma) <= target:
        sigma /= 2
        if sigma < smallest:
            raise UserError(
                f"Epsilon {target:g} is not used up: sigma {smallest:g} spends only {spent(smallest):.4g}. "
                "Give sigma instead of epsilon, or ask for less."
            )
    return sigma, sigma * 2


def _between(low: float, high: float, *, at_low: float, at_high: float, aim: float) -> float:
    """Where a power law through both ends meets the aim, kept off the ends; the middle if an end is not finite."""
    share = 0.5
    if math.isfinite(at_low) and at_high > 0:
        share = math.log(at_low / aim) / math.log(at_low / at_high)
    return low * math.pow(high / low, min(max(share, 0.05), 0.95))


@lru_cache(maxsize=1024)
def _branch_epsilon(branch: Branch, relation: Relation, delta: float) -> float:
    if not branch:
        return 0.0
    if any(mechanism.noise < _LEAST_NOISE for mechanism, _ in branch):
        return math.inf
    if _too_long(branch):
        offers = (rdp - rdp_room(order, 0.0, delta) for order, rdp in _long_rdp(branch, relation))
        return max(0.0, min(offers))
    told = beside.ask("epsilon", _plain(branch), relation, delta)
    return _composed_epsilon(branch, relation, delta) if told is None else float(told)


def _composed_epsilon(branch: Branch, relation: Relation, delta: float) -> float:
    return max(0.0, float(_composed(branch, relation).get_epsilon_for_delta(delta)))


def served() -> dict[str, Callable[..., Any]]:
    """What a process beside this one is asked for, with plain values; what it needs is loaded first."""
    import dp_accounting.pld.privacy_loss_distribution
    import dp_accounting.rdp  # noqa: F401

    return {
        "epsilon": lambda branch, relation, delta: _composed_epsilon(_branch(branch), relation, delta),
        "rdp": _sampled_gaussian_rdp,
    }


def _plain(branch: Branch) -> list[list[Any]]:
    return [[*astuple(mechanism), times] for mechanism, times in branch]


def _branch(plain: Sequence[Sequence[Any]]) -> Branch:
    return tuple((Mechanism(*fields), times) for *fields, times in plain)


def _branch_delta(branch: Branch, relation: Relation, epsilon: float) -> float:
    if not branch:
        return 0.0
    if any(mechanism.noise < _LEAST_NOISE for mechanism, _ in branch):
        return 1.0
    if _too_long(branch):
        logs = ((k - 1) * (rdp - epsilon + math.log1p(-1 / k)) - math.log(k) for k, rdp in _long_rdp(branch, relation))
        return math.exp(min(0.0, *logs))
    return min(1.0, max(0.0, float(_composed(branch, relation).get_delta_for_epsilon(epsilon))))


def _too_long(branch: Branch) -> bool:
    """Whether PLD would compose too often. Unsampled Gaussians are one, however many."""
    return sum(times for mechanism, times in branch if (mechanism.kind, mechanism.rate) != ("gaussian", 1)) > _MOST_USES


def _long_rdp(branch: Branch, relation: Relation) -> Iterator[tuple[float, float]]:
    """RDP by order; each use is taken to be off by the rounding of floats, which so many uses would add up."""
    slack = 1e-14 * sum(times for _, times in branch)
    return ((order, rdp + slack) for order, rdp in zip(ORDERS, _branch_rdp(branch, relation), strict=True))


@lru_cache(maxsize=16)
def _composed(branch: Branch, relation: Relation) -> Any:
    branch = _merged(tuple((_within_range(mechanism), times) for mechanism, times in branch))
    step = _discretisation(branch, relation)
    parts = [_pld(mechanism, times, relation=relation, step=step) for mechanism, times in branch]
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


def _merged(branch: Branch) -> Branch:
    """Unsampled Gaussians as the one that they are together, exactly, a hair on the safe side of rounding."""
    whole = [(m, times) for m, times in branch if (m.kind, m.rate) == ("gaussian", 1)]
    if len(whole) < 2:
        return branch
    noise = (1.0 - 1e-12) / math.sqrt(math.fsum(times / m.noise**2 for m, times in whole))
    return ((replace(whole[0][0], noise=noise), 1), *(one for one in branch if one not in whole))


def _discretisation(branch: Branch, relation: Relation) -> float:
    """A grid fine against the loss of a single use (rounding adds up over the uses), coarse against the total."""
    factor = 2.0 if relation == "replace-one" else 1.0
    variance = spread = 0.0
    for mechanism, times in branch:
        shift = factor / mechanism.noise
        variance += times * mechanism.rate**2 * math.expm1(min(shift * shift, 50.0))
        spread += times * mechanism.rate * shift
    # Rounding to a grid adds about step * spread to the variance of the total loss.
    wanted = variance / spread / 16
    step = _COARSEST_STEP
    while step > wanted and step > _FINEST_STEP:
        step /= 2
    peak = max(factor / mechanism.noise for mechanism, _ in branch)
    total = sum(times * (factor * mechanism.rate / mechanism.noise) ** 2 for mechanism, times in branch)
    reach = 12 * math.sqrt(total) + total / 2 + peak * peak / 2 + 6 * peak
    while reach / step > _MAX_POINTS:
        step *= 2
    return step


def _pld(mechanism: Mechanism, times: int, *, relation: Relation, step: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    doubled = relation == "replace-one"
    if mechanism.kind == "gaussian" and mechanism.rate == 1:
        noise = mechanism.noise / math.sqrt(times)
        return pld.from_gaussian_mechanism(noise / 2 if doubled else noise, value_discretization_interval=step)
    if mechanism.kind == "gaussian":
        neighbours = NeighboringRelation.REPLACE_ONE if doubled else NeighboringRelation.ADD_OR_REMOVE_ONE
        one = pld.from_gaussian_mechanism(
            mechanism.noise,
            sampling_prob=mechanism.rate,
            value_discretization_interval=step,
            neighboring_relation=neighbours,
        )
        return one.self_compose(times)
    if mechanism.kind == "laplace":
        _refuse_sampled_replace(mechanism, relation)
        scale = mechanism.noise / 2 if doubled else mechanism.noise
        one = pld.from_laplace_mechanism(scale, sampling_prob=mechanism.rate, value_discretization_interval=step)
        return one.self_compose(times)
    raise UserError(f"No accounting for the mechanism {mechanism.kind!r}.")


def _within_range(mechanism: Mechanism) -> Mechanism:
    """Less noise or a higher rate where the numbers leave the range of floats: never a smaller bound."""
    if mechanism.noise <= _MOST_NOISE and mechanism.rate >= _LEAST_RATE:
        return mechanism
    return replace(mechanism, noise=min(mechanism.noise, _MOST_NOISE), rate=max(mechanism.rate, _LEAST_RATE))


def _refuse_sampled_replace(mechanism: Mechanism, relation: Relation) -> None:
    if relation == "replace-one" and mechanism.rate < 1:
        raise UserError("No exact accounting for a sampled Laplace under replace-one; use add-remove, or rate 1.")


def _branch_rdp(branch: Branch, relation: Relation) -> tuple[float, ...]:
    total = [0.0] * len(ORDERS)
    for mechanism, times in branch:
        curve = mechanism_rdp(mechanism, relation)
        total = [sum_ + times * value for sum_, value in zip(total, curve, strict=True)]
    return tuple(total)


def _sampled_gaussian_rdp(noise: float, rate: float) -> tuple[float, ...]:
    told = beside.ask("rdp", noise, rate)
    if told is not None:
        return tuple(told)
    from absl import logging
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(ORDERS)
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # one warning a fractional order whose series does not converge; see below
    try:
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)))
    finally:
        logging.set_verbosity(verbosity)
    # Such an order comes out infinite. RDP grows with the order, so the next finite value above is a bound for it.
    values = list(_non_negative(accountant.rdp))
    for k in reversed(range(len(values) - 1)):
        values[k] = min(values[k], values[k + 1])
    return tuple(values)


def _sampled_gaussian_replace_rdp(noise: float, rate: float) -> tuple[float, ...]:
    """Renyi divergence of the pair in the module's docstring by the trapezoidal rule, which converges exponentially
    here: the integrand is analytic in a strip of width pi noise^2 around the real line."""
    import numpy as np

    step = min(noise, noise * noise) / 8
    values = []
    for order in ORDERS:
        reach = 2 * order + 12 * noise
        if 2 * reach / step > _MAX_POINTS:
            values.append(2 * order / noise**2)  # without sampling: never less, by quasi-convexity
            continue
        x = np.arange(-reach, reach + step, step)
        centre = np.log1p(-rate)
        up = np.logaddexp(centre, np.log(rate) + (x - 0.5) / noise**2)
        down = np.logaddexp(centre, np.log(rate) + (-x - 0.5) / noise**2)
        terms = order * up + (1 - order) * down - x * x / (2 * noise**2)
        peak = float(terms.max())
        area = float(np.exp(terms - peak).sum()) * step / (noise * math.sqrt(2 * math.pi))
        values.append((peak + math.log(area)) / (order - 1))
    return _non_negative(values)


def _laplace_rdp(pure: float, order: float) -> float:
    """Mironov (2017), proposition 6, in logarithms so that a tiny scale does not overflow."""
    up = math.log(order / (2 * order - 1)) + (order - 1) * pure
    down = math.log((order - 1) / (2 * order - 1)) - order * pure
    return max(0.0, (up + math.log1p(math.exp(down - up))) / (order - 1))


def _pure_rdp(pure: float, order: float) -> float:
    """Renyi DP of randomised response with pure epsilon `pure`: the largest of any mechanism that is pure-DP."""
    kept, flipped = -math.log1p(math.exp(-pure)), -pure - math.log1p(math.exp(-pure))
    up, down = order * kept + (1 - order) * flipped, order * flipped + (1 - order) * kept
    return max(0.0, (up + math.log1p(math.exp(down - up))) / (order - 1))


def _non_negative(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(0.0, float(value)) for value in values)
