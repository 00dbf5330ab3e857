"""Which plans a cap admits: a Renyi filter in integers, or one plan declared in advance.

Under a cap (epsilon, delta):
- A Renyi filter at three orders that follow from the cap alone (`orders`), each with its own part of delta. A plan is
  admitted if it fits at one of them: the sum of the RDP of all that is held, in integers of 1e-12 rounded up, stays
  within what epsilon and that part of delta leave at that order, rounded down. An open run counts with its whole plan,
  a closed one with what it released. No plan changes the orders, so none can spoil them for later ones.
  Why it is sound for adaptively chosen runs: stopped where order k would overrun, the releases are (epsilon, delta_k)-
  DP (a filter at a fixed order, Feldman and Zrnic 2021). Part all histories by the first order that is not overrun
  at their end: on part k nothing was stopped, so P(S, k) <= exp(epsilon) Q(S, k) + delta_k. The sum over k has delta.
- Or a plan declared in advance: if nothing was ever released from the data set and the tight (PLD) epsilon of the plan
  is within the cap, it is admitted. From its first release it counts in full for ever, even if it stops early, and
  only parts of it may be released.
- Beside such a plan the filter goes on with what it leaves: if the plan is (e, delta / 2)-DP by PLD, then a filter
  under (epsilon - e, delta / 2). Both are interactive mechanisms with a guarantee of their own, and such guarantees add
  up even when their releases alternate (Vadhan and Zhang 2023). Once something was admitted beside it, the plan counts
  in full even if nothing of it is ever released. Which of the two cases holds follows from the cap and the plan.
- Changing a cap is a new declaration: it is logged, and the orders follow from the new cap.
- Ledgers of earlier versions fixed one order by the first plan, with the whole delta. A data set under way keeps
  that order, and nothing but it, until its cap is changed: it is neither laxer nor stricter than it was.

Several orders or one? Equal plans that fit, as a part of those at the best order in hindsight; mean over 25 to 163
plans a cap that fit at least once (one Gaussian release, sigma 0.5 to 16; DP-SGD, sigma 0.6 to 8, rates 0.001 to 0.05,
100 to 5000 steps; both together, as in PRISM; one Laplace release):

    delta                                         1e-5                       1e-6
    cap                                   0.2     1     3    10     0.2     1     3    10
    the order that is best for Gaussians  0.78  0.88  0.91  0.97    0.85  0.89  0.89  0.96
    a tenth below it                      0.76  0.88  0.92  0.98    0.84  0.90  0.92  0.97
    eight orders, delta in equal parts    0.67  0.73  0.78  0.85    0.72  0.77  0.82  0.86
    these three                           0.81  0.91  0.92  0.97    0.85  0.91  0.93  0.97

Gaussian releases keep 0.96 to 0.98. What one order loses, it loses whole: DP-SGD at sigma 1, rate 0.001, 1000 steps
under a cap of 1 fits 27 times in hindsight, not once at one order and 15 times at these. The lowest orders are left
out: they have room only with most of delta (at rate 0.003, 17 plans of 100 steps in hindsight; here one, by PLD). The
three orders and their parts were picked on these same plans, the best of some thousand draws; the other rows were not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from prismfl.errors import BudgetError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import RELATIONS, Cost, Mechanism, Relation

SCALE = 10**12
"""RDP is added up in integers of 1 / SCALE."""

Rule = Literal["rdp", "pld", "beside", "uncapped"]

_ORDERS = ((0.95, 0.8), (0.7, 0.17), (None, 0.02))
"""Where the filter's orders lie, as a part of the way from 1 to the one that is best for Gaussian releases (None: the
highest), and the part of delta that each has. Changing them makes every ledger's filter another one."""

_BEYOND = 10**60  # stands for infinity in integers: above any budget
_MOST_ROOM = 1e40


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that may ever be spent on a data set."""

    epsilon: float
    delta: float
    unit: str = "record"
    relation: Relation = "add-remove"

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UserError(f"Expected the cap's {name} to be a number, got {value!r}.")
        if not 1e-6 <= self.epsilon < math.inf:
            raise UserError(f"Expected a cap of finite epsilon >= 1e-06, got {self.epsilon}.")
        if not 1e-100 <= self.delta < 1:
            raise UserError(f"Expected a cap with 1e-100 <= delta < 1, got {self.delta}.")
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise UserError(f"Expected a unit such as 'record', 'client' or a column name, got {self.unit!r}.")
        if self.relation not in RELATIONS:
            raise UserError(f"Expected a relation out of {', '.join(RELATIONS)}, got {self.relation!r}.")

    def describe(self) -> str:
        """The cap in words."""
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}, unit {self.unit}, {self.relation}"


def cap_json(cap: Cap | None) -> dict[str, Any] | None:
    """A cap as plain values; None stays None."""
    return None if cap is None else asdict(cap)


def cap_from_json(data: Mapping[str, Any] | None) -> Cap | None:
    """The inverse of `cap_json`."""
    return None if data is None else Cap(**data)


def cap_text(cap: Cap | None) -> str:
    """A cap, or that there is none, in words."""
    return "no cap" if cap is None else f"a cap of {cap.describe()}"


def strictest(caps: Mapping[str, Cap | None]) -> Cap | None:
    """The cap of data sets (by id) that turn out to be one."""
    given = [cap for cap in caps.values() if cap is not None]
    if len({(cap.unit, cap.relation) for cap in given}) > 1:
        raise UserError(
            f"The data bridges data sets {', '.join(caps)} whose caps protect different units; give them one unit."
        )
    if not given:
        return None
    epsilon, delta = min(cap.epsilon for cap in given), min(cap.delta for cap in given)
    return Cap(epsilon, delta, given[0].unit, given[0].relation)


def within(cap: Cap | None, ceiling: Cap | None) -> Cap | None:
    """A cap that goes beyond a ceiling in neither of its numbers; None is no cap, or no ceiling."""
    if cap is None or ceiling is None:
        return cap or ceiling
    return replace(cap, epsilon=min(cap.epsilon, ceiling.epsilon), delta=min(cap.delta, ceiling.delta))


def admit(
    run: str,
    dataset: str,
    *,
    plan: Cost,
    cap: Cap | None,
    order: int | None,
    standing: Sequence[Cost],
    declared: Cost | None = None,
) -> tuple[Rule, int | None]:
    """The rule under which a plan is admitted beside what is `standing`, or BudgetError. `order` is the one that an
    earlier version has fixed, `declared` the plan among `standing` that was admitted by its PLD epsilon; the order
    comes back as long as it holds."""
    if cap is None:
        return "uncapped", None
    for cost in (plan, *standing):  # what was spent for another unit says nothing about the cap's
        check_terms(cost, cap)
    order = order if standing else None
    if plan.is_zero:
        return "rdp", order
    if not plan.private:
        raise BudgetError(f"Refused: run {run!r} has no DP guarantee, data set {dataset} a cap of {cap.describe()}.")
    needs = units(plan)
    after = [a + b for a, b in zip(total(standing), needs, strict=True)]
    if _share(cap, order, after) <= 1:
        return "rdp", order
    if not standing and not _hopeless(plan, cap) and account.epsilon(plan, cap.delta) <= cap.epsilon:
        return "pld", None
    if declared is not None and order is None:
        rest, mine = _beside(cap, declared), units(declared)
        if rest is not None and _share(rest, None, [a - b for a, b in zip(after, mine, strict=True)]) <= 1:
            return "beside", None
    held = used(cap, order=order, standing=standing, declared=declared)
    raise BudgetError(_refusal(run, dataset, cap, plan=plan, order=order, held=held))


def used(cap: Cap, *, order: int | None, standing: Sequence[Cost], declared: Cost | None) -> float:
    """The part of a cap's budget that is held."""
    held = total(standing)
    if declared is None or order is not None or (rest := _beside(cap, declared)) is None:
        return float(_share(cap, order, held))
    others = [a - b for a, b in zip(held, units(declared), strict=True)]
    return 1 - rest.epsilon / cap.epsilon * (1 - float(_share(rest, None, others)))


@lru_cache(maxsize=256)
def orders(cap: Cap) -> Mapping[int, float]:
    """The orders of a cap's filter (their places in `account.ORDERS`) and the delta of each."""
    best = max(range(len(account.ORDERS)), key=lambda k: budget(cap, k) / account.ORDERS[k])
    found: dict[int, float] = {}
    for where, part in _ORDERS:
        aim = math.inf if where is None else 1 + where * (account.ORDERS[best] - 1)
        k = min(range(len(account.ORDERS)), key=lambda k: abs(account.ORDERS[k] - min(aim, account.ORDERS[-1])))
        found[k] = found.get(k, 0.0) + part * cap.delta
    return found


def holds(cap: Cap, *, order: int | None, standing: Sequence[Cost]) -> bool:
    """Whether what stands on a data set is within its cap by the filter, whatever rule each run was admitted by."""
    if any((cost.unit, cost.relation) != (cap.unit, cap.relation) or not cost.private for cost in standing):
        return False
    return _share(cap, order, total(standing)) <= 1


def check_terms(cost: Cost, cap: Cap) -> None:
    """Refuses a cost whose unit or relation is not the cap's."""
    if (cost.unit, cost.relation) != (cap.unit, cap.relation):
        raise BudgetError(
            f"Refused: a cost per {cost.unit} under {cost.relation} cannot be paid from a cap per {cap.unit} under "
            f"{cap.relation}; plan the run for the cap's unit and relation."
        )


def check_within_plan(run: str, *, plan: Cost, rule: Rule, charged: Cost, cost: Cost) -> None:
    """A part of the plan, or (under the filter, which only knows RDP) no more than its RDP at any order."""
    if (cost.unit, cost.relation) != (plan.unit, plan.relation):
        raise BudgetError(
            f"Run {run!r} has reserved costs per {plan.unit} under {plan.relation}, "
            f"not per {cost.unit} under {cost.relation}."
        )
    after = charged + cost
    if plan.covers(after):
        return
    if rule != "pld" and after.private and all(a <= b for a, b in zip(units(after), units(plan), strict=True)):
        return
    raise BudgetError(
        f"Refused: run {run!r} would have spent {after.describe()}, its plan is {plan.describe()}; "
        "a longer run needs a new plan."
    )


def units(cost: Cost) -> list[int]:
    """RDP per order in integers. Each use of a mechanism is rounded up by itself, so the units of a sum are the sum of
    the units and a plan is used up exactly by its parts."""
    if not cost.private:
        return [_BEYOND] * len(account.ORDERS)
    totals = []
    for branch in set(cost.branches):
        summed = [0] * len(account.ORDERS)
        for mechanism, times in branch:
            once = _mechanism_units(mechanism, cost.relation)
            summed = [a + times * b for a, b in zip(summed, once, strict=True)]
        totals.append(summed)
    return [max(column) for column in zip(*totals, strict=True)]


def total(costs: Sequence[Cost]) -> list[int]:
    """The RDP of some costs together, per order in integers."""
    summed = [0] * len(account.ORDERS)
    for cost in costs:
        summed = [a + b for a, b in zip(summed, units(cost), strict=True)]
    return summed


def budget(cap: Cap, order: int, delta: float | None = None) -> int:
    """The RDP at an order that the cap leaves room for, with all of its delta or with a part."""
    room = account.rdp_room(account.ORDERS[order], cap.epsilon, cap.delta if delta is None else delta)
    return max(0, math.floor(min(room, _MOST_ROOM) * SCALE))


def _filter(cap: Cap, order: int | None) -> Mapping[int, float]:
    return orders(cap) if order is None else {order: cap.delta}


def _share(cap: Cap, order: int | None, held: Sequence[int]) -> Fraction | float:
    """What is held as a part of the filter's budget, at the order where it is least: above 1 it does not fit. Exact:
    one unit more than the budget is more than 1."""
    if not any(held):
        return 0.0
    rooms = {k: budget(cap, k, delta) for k, delta in _filter(cap, order).items()}
    return min(Fraction(held[k], room) if room else math.inf for k, room in rooms.items())


def _beside(cap: Cap, declared: Cost) -> Cap | None:
    """What a plan that was declared in advance leaves of a cap to others."""
    if _share(cap, None, units(declared)) <= 1:
        return None  # the filter itself can hold it
    left = cap.epsilon - account.epsilon(declared, cap.delta / 2)
    return replace(cap, epsilon=left, delta=cap.delta / 2) if left >= 1e-6 and cap.delta >= 2e-100 else None


def _hopeless(plan: Cost, cap: Cap) -> bool:
    """RDP far above the cap: refused unseen, since composing an absurd plan by PLD could keep the site computing."""
    return account.epsilon_rdp(plan, cap.delta) > 4 * cap.epsilon + 1


@lru_cache(maxsize=1024)
def _mechanism_units(mechanism: Mechanism, relation: Relation) -> tuple[int, ...]:
    """One use of a mechanism, rounded up per order; no use is free. The relative 1e-12 is for the floats before."""
    curve = account.mechanism_rdp(mechanism, relation)
    return tuple(math.floor(value * (1 + 1e-12) * SCALE) + 1 if value < math.inf else _BEYOND for value in curve)


def _refusal(run: str, dataset: str, cap: Cap, *, plan: Cost, order: int | None, held: float) -> str:
    """In words: the epsilon that is printed elsewhere, and what the filter, which decides, makes of it."""
    counted = _counted(cap, order, units(plan))
    if _hopeless(plan, cap):
        asked = f"epsilon {counted:.4g} as the ledger's filter counts it"
    else:
        asked = f"epsilon {account.epsilon(plan, cap.delta):.4g} ({counted:.4g} as the ledger's filter counts it)"
    part = "all" if held >= 1 else f"{100 * held:.3g} %"
    return (
        f"Refused: run {run!r} asks for {asked}; data set {dataset} has {part} spent or reserved of its cap of "
        f"{cap.describe()}. More noise, fewer steps or a higher cap would do."
    )


def _counted(cap: Cap, order: int | None, needs: Sequence[int]) -> float:
    """The least epsilon of a cap under which the filter would admit so much."""
    offers = (
        math.inf if needs[k] >= _BEYOND else needs[k] / SCALE - account.rdp_room(account.ORDERS[k], 0.0, delta)
        for k, delta in _filter(cap, order).items()
    )
    return max(0.0, min(offers))
