"""Which plans a cap admits: a Renyi filter in integers, or one plan declared in advance.

Under a cap (epsilon, delta):
- A Renyi filter at one order. The order is chosen from the cap and the first plan alone, before any record is touched,
  as the one under which that plan fits most often, and then stays. From then on every plan must fit: the sum of the
  RDP at that order, in integers of 1e-12 rounded up, stays within what (epsilon, delta) leaves at that order, rounded
  down. A fixed order makes the bound hold for adaptively chosen runs without a union bound over orders (Feldman and
  Zrnic 2021). An open run counts with its whole plan, a closed one with what it released.
- Or a plan declared in advance: if nothing was ever released from the data set and the tight (PLD) epsilon of the plan
  is within the cap, it is admitted. From its first release it counts in full for ever, even if it stops early, and
  only parts of it may be released; since it does not fit the filter, no other plan is admitted after it. So either it
  alone runs and the PLD bound holds, or only the filter decides.
- Changing a cap is a new declaration: it is logged, and the order is chosen again at the next plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from prismfl.errors import BudgetError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import RELATIONS, Cost, Mechanism, Relation

SCALE = 10**12
"""RDP is added up in integers of 1 / SCALE."""

Rule = Literal["rdp", "pld", "uncapped"]

_BEYOND = 10**60  # stands for infinity in integers: above any budget


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
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}, unit {self.unit}, {self.relation}"


def cap_json(cap: Cap | None) -> dict[str, Any] | None:
    return None if cap is None else asdict(cap)


def cap_from_json(data: Mapping[str, Any] | None) -> Cap | None:
    return None if data is None else Cap(**data)


def cap_text(cap: Cap | None) -> str:
    return "no cap" if cap is None else f"a cap of {cap.describe()}"


def strictest(caps: Mapping[str, Cap | None]) -> Cap | None:
    """The cap of data sets (by id) that turn out to be one."""
    given = [cap for cap in caps.values() if cap is not None]
    if len({(cap.unit, cap.relation) for cap in given}) > 1:
        raise UserError(
            f"The data bridges data sets {', '.join(caps)} whose caps protect different units; give them one unit."
        )
    return min(given, key=lambda cap: (cap.epsilon, cap.delta)) if given else None


def admit(
    run: str, dataset: str, *, plan: Cost, cap: Cap | None, order: int | None, standing: Sequence[Cost]
) -> tuple[Rule, int | None]:
    """The rule under which a plan is admitted beside what is `standing`, and the filter's order, or BudgetError."""
    if cap is None:
        return "uncapped", None
    check_terms(plan, cap)
    if plan.is_zero:
        return "rdp", order if standing else None
    if not plan.private:
        raise BudgetError(f"Refused: run {run!r} has no DP guarantee, data set {dataset} a cap of {cap.describe()}.")
    needs, held = units(plan), total(standing)
    if not standing or order is None:
        order = _best_order(cap, needs=needs, held=held)
    if held[order] + needs[order] <= budget(cap, order):
        return "rdp", order
    # Refused unseen when RDP is far above the cap: composing an absurd plan by PLD could keep the site computing.
    hopeless = account.epsilon_rdp(plan, cap.delta) > 4 * cap.epsilon + 1
    if not standing and not hopeless and account.epsilon(plan, cap.delta) <= cap.epsilon:
        return "pld", order
    raise BudgetError(_refusal(run, dataset, cap, plan=plan, held=held))


def holds(cap: Cap, *, order: int | None, standing: Sequence[Cost]) -> bool:
    """Whether what stands on a data set is within its cap: as it was admitted, by the filter or as the one plan that
    was declared in advance."""
    if any((cost.unit, cost.relation) != (cap.unit, cap.relation) for cost in standing):
        return False
    if any(held <= budget(cap, k) for k, held in enumerate(total(standing))):
        return True
    return len(standing) == 1 and account.epsilon(standing[0], cap.delta) <= cap.epsilon


def check_terms(cost: Cost, cap: Cap) -> None:
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
    summed = [0] * len(account.ORDERS)
    for cost in costs:
        summed = [a + b for a, b in zip(summed, units(cost), strict=True)]
    return summed


def budget(cap: Cap, order: int) -> int:
    return max(0, math.floor(account.rdp_room(account.ORDERS[order], cap.epsilon, cap.delta) * SCALE))


def _best_order(cap: Cap, *, needs: list[int], held: list[int]) -> int:
    """The order under which the plan fits most often into what is left."""
    room = [budget(cap, k) - held[k] for k in range(len(needs))]
    return max(range(len(needs)), key=lambda k: room[k] / max(1, needs[k]))


@lru_cache(maxsize=1024)
def _mechanism_units(mechanism: Mechanism, relation: Relation) -> tuple[int, ...]:
    """One use of a mechanism, rounded up per order; no use is free. The relative 1e-12 is for the floats before."""
    curve = account.mechanism_rdp(mechanism, relation)
    return tuple(math.floor(value * (1 + 1e-12) * SCALE) + 1 if value < math.inf else _BEYOND for value in curve)


def _refusal(run: str, dataset: str, cap: Cap, *, plan: Cost, held: list[int]) -> str:
    asked = account.epsilon_rdp(plan, cap.delta)
    offers = [
        value / SCALE - account.rdp_room(order, 0.0, cap.delta)
        for order, value in zip(account.ORDERS, held, strict=True)
    ]
    spent = max(0.0, min(offers)) if any(held) else 0.0
    spent = math.inf if spent * SCALE >= _BEYOND else spent
    return (
        f"Refused: run {run!r} asks for epsilon {asked:.4g} (RDP); data set {dataset} has {spent:.4g} spent or "
        f"reserved of its cap of {cap.describe()}. More noise, fewer steps or a higher cap would do."
    )
