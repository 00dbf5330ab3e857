"""What a cap admits: orders from the cap alone, plans declared in advance and what goes beside them, old ledgers."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismfl.errors import BudgetError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import admission
from prismfl.privacy.ledger.admission import SCALE, Cap, budget, orders, units
from prismfl.privacy.ledger.book import Ledger

CAP = Cap(1.0, 1e-5)
CAPS = [Cap(epsilon, delta) for epsilon in (0.2, 1.0, 3.0, 10.0) for delta in (1e-5, 1e-6)]
ONE = Cost.gaussian(20.0)
TAIL = Cost.gaussian(1.0, 0.003, times=100)
"""Fits no order of the filter of `CAP`, and has an epsilon of 0.2 by PLD."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "site.ledger") as opened:
        yield opened


def new_data(ledger: Ledger, cap: Cap | None = CAP) -> str:
    return ledger.dataset("a", records=[b"1", b"2"], cap=cap)


def spend(ledger: Ledger, run: str, data: str, *, plan: Cost, close: bool = True) -> None:
    ledger.reserve(run, data, plan)
    ledger.release(run, data, run, plan, run.encode())
    if close:
        ledger.close(run)


def fill(ledger: Ledger, data: str, plan: Cost, most: int = 1000) -> int:
    """How many equal plans are admitted one after the other."""
    for k in range(most):
        try:
            ledger.reserve(f"fill {k}", data, plan)
        except BudgetError:
            return k
    return most


def rules(ledger: Ledger) -> list[str]:
    return [entry.body["rule"] for entry in ledger.history() if entry.kind == "reserve"]


# The orders


@pytest.mark.parametrize(
    "first",
    [
        Cost.laplace(1e6),
        Cost.gaussian(1e5),
        Cost.laplace(3e3),
        Cost.gaussian(200.0, 0.001),
        Cost.gaussian(0.6, 1e-6),
        Cost.laplace(30.0),
    ],
    ids=Cost.describe,
)
def test_no_first_plan_spoils_what_later_ones_can_have(tmp_path: Path, first: Cost) -> None:
    """A first plan of epsilon 0.0 chose the order that suited it: 1 of 15 plans fitted afterwards."""
    plan, found = Cost.gaussian(16.0), []
    for name, before in (("alone", Cost.zero()), ("after", first)):
        with Ledger.open(tmp_path / name) as ledger:
            data = new_data(ledger)
            spend(ledger, "first", data, plan=before)
            found.append(fill(ledger, data, plan))
    price = account.epsilon(first, CAP.delta) / CAP.epsilon
    assert found[0] >= 15
    assert found[0] * (1 - 2 * price) - 1 <= found[1] <= found[0]


@pytest.mark.parametrize("cap", [*CAPS, Cap(1e-6, 1e-5), Cap(1e-6, 1e-100), Cap(1e300, 0.999), Cap(1.0, 0.5)])
def test_the_orders_follow_from_the_cap_and_share_its_delta(cap: Cap) -> None:
    assert math.fsum(orders(cap).values()) <= cap.delta
    assert all(delta > 0 for delta in orders(cap).values())
    assert orders(cap) == orders(Cap(cap.epsilon, cap.delta, unit="patient", relation="replace-one"))
    for k, delta in orders(cap).items():
        assert 0 <= budget(cap, k, delta) <= budget(cap, k)


def hindsight(plan: Cost, cap: Cap) -> float:
    curve = zip(account.ORDERS, account.rdp_curve(plan), strict=True)
    return max(account.rdp_room(order, cap.epsilon, cap.delta) / rdp for order, rdp in curve)


def by_filter(plan: Cost, cap: Cap) -> float:
    needs = units(plan)
    return max(budget(cap, k, delta) / needs[k] for k, delta in orders(cap).items())


def test_the_orders_lose_little_against_hindsight() -> None:
    """The figures of the module's table, on fewer plans: Gaussian releases keep 0.95, all together 0.85."""
    plans = [Cost.gaussian(s, q, times=500) for s in (1.0, 2.0, 4.0) for q in (0.001, 0.01)]
    plans += [Cost.gaussian(4.0, 0.02, times=500) + Cost.gaussian(8.0), Cost.laplace(5.0), Cost.laplace(30.0)]
    kept = []
    for cap in CAPS:
        gaussian = Cost.gaussian(16.0)
        assert 0.95 <= by_filter(gaussian, cap) / hindsight(gaussian, cap) <= 1
        kept += [by_filter(plan, cap) / best for plan in plans if (best := hindsight(plan, cap)) >= 1]
    assert max(kept) <= 1
    assert sum(kept) / len(kept) >= 0.85


def test_dp_sgd_at_sigma_one_fits_under_a_cap_of_one() -> None:
    plan = Cost.gaussian(1.0, 0.001, times=1000)
    assert by_filter(plan, CAP) > 14
    [gauss] = [k for k, order in enumerate(account.ORDERS) if order == 18.0]
    assert budget(CAP, gauss) / units(plan)[gauss] < 1


# Plans declared in advance


def test_others_go_beside_a_cheap_plan_that_the_filter_cannot_hold(ledger: Ledger) -> None:
    """Nothing went beside it before, though it takes a fifth of the cap."""
    data = new_data(ledger)
    assert 0.15 < account.epsilon(TAIL, CAP.delta) < 0.25
    spend(ledger, "first", data, plan=TAIL, close=False)
    [status] = ledger.status()
    assert status.used == pytest.approx(account.epsilon(TAIL, CAP.delta / 2), rel=1e-6)
    n = fill(ledger, data, ONE)
    assert n >= 10
    assert rules(ledger) == ["pld"] + ["beside"] * n
    assert account.epsilon(TAIL + ONE * n, CAP.delta) <= CAP.epsilon
    # The rest is a filter under what the plan leaves, with half of delta: exactly its budget, and no unit more.
    rest = Cap(CAP.epsilon - account.epsilon(TAIL, CAP.delta / 2), CAP.delta / 2)
    assert n == max(budget(rest, k, delta) // units(ONE)[k] for k, delta in orders(rest).items())
    with pytest.raises(BudgetError):
        ledger.reserve("again", data, TAIL)


def test_a_plan_by_pld_stays_when_others_were_admitted_beside_it(ledger: Ledger) -> None:
    data = new_data(ledger)
    ledger.reserve("first", data, TAIL)
    spend(ledger, "beside", data, plan=ONE)
    ledger.close("first")
    n = fill(ledger, data, ONE)
    assert set(rules(ledger)[1:]) == {"beside"}
    for k in range(n):
        ledger.close(f"fill {k}")
    with pytest.raises(BudgetError):
        ledger.reserve("again", data, TAIL)


def test_nothing_stays_when_nothing_was_released(ledger: Ledger) -> None:
    data = new_data(ledger)
    ledger.reserve("first", data, TAIL)
    ledger.reserve("beside", data, ONE)
    ledger.close("first")
    ledger.close("beside")
    ledger.reserve("second", data, TAIL)
    ledger.close("second")
    ledger.reserve("third", data, ONE)
    assert rules(ledger) == ["pld", "beside", "pld", "rdp"]
    ledger.release("third", data, "r", ONE, b"x")
    ledger.close("third")
    assert fill(ledger, data, ONE) == int(by_filter(ONE, CAP)) - 1


def test_two_declared_plans_that_became_one_data_set_leave_nothing(ledger: Ledger) -> None:
    for name in ("a", "b"):
        data = ledger.dataset(name, records=[name.encode()], cap=CAP)
        spend(ledger, f"first {name}", data, plan=TAIL)
    both = ledger.dataset("all", records=[b"a", b"b"])
    with pytest.raises(BudgetError):
        ledger.reserve("more", both, Cost.gaussian(1000.0))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_is_admitted_exceeds_the_cap(tmp_path: Path, seed: int) -> None:
    """Runs of all kinds, stopped early or not, in any order: what was released stays within the cap by PLD."""
    draw = random.Random(seed)
    cap = draw.choice([CAP, Cap(3.0, 1e-6)])
    tight = account.calibrate(lambda sigma: Cost.gaussian(sigma, times=4), 0.9 * cap.epsilon, cap.delta)
    kinds = [TAIL, Cost.gaussian(tight, times=4), ONE * 4, Cost.laplace(20.0, times=4), Cost.gaussian(1e4)]
    kinds.append(Cost.parallel([ONE * 2, Cost.laplace(15.0)]))
    with Ledger.open(tmp_path / "ledger") as ledger:
        data, live = new_data(ledger, cap), {}
        for k in range(120):
            name = f"run {k}"
            if draw.random() < 0.5:
                plan = draw.choice(kinds)
                try:
                    ledger.reserve(name, data, plan)
                    live[name] = plan
                except BudgetError:
                    continue
            elif live:
                name = draw.choice(sorted(live))
                if draw.random() < 0.5:
                    ledger.release(name, data, name, live[name], b"x")
                ledger.close(name)
                del live[name]
        assert account.epsilon(ledger.spent(data), cap.delta) <= cap.epsilon * (1 + 1e-9)


def test_a_higher_cap_goes_on_from_what_stands(ledger: Ledger) -> None:
    data = new_data(ledger)
    spend(ledger, "first", data, plan=TAIL)
    high = Cap(3.0, 1e-5)
    ledger.set_cap(data, high)
    n = fill(ledger, data, ONE)
    assert set(rules(ledger)[1:]) == {"rdp"}  # the filter of the higher cap holds the first plan too
    assert account.epsilon(TAIL + ONE * n, high.delta) <= high.epsilon
    ledger.set_cap(data, CAP)
    with pytest.raises(BudgetError):
        ledger.reserve("more", data, Cost.gaussian(1000.0))


# Ledgers of earlier versions


def old_reserve(ledger: Ledger, run: str, data: str, *, plan: Cost, order: float, rule: str = "rdp") -> None:
    """An entry as earlier versions wrote it: with the order that the first plan chose."""
    body = {"run": run, "dataset": data, "plan": plan.to_json(), "rule": rule, "order": order}
    with ledger._chain.transaction():
        ledger._chain.append("reserve", body)


def test_an_old_ledger_goes_on_at_its_order_until_its_cap_is_changed(ledger: Ledger, tmp_path: Path) -> None:
    data, free = new_data(ledger), Cost.laplace(1e6)
    old_reserve(ledger, "first", data, plan=free, order=1024.0)
    ledger.release("first", data, "first", free, b"x")
    ledger.close("first")
    with Ledger.open(tmp_path / "site.ledger") as again:
        with pytest.raises(BudgetError):
            again.reserve("second", data, ONE)
        again.reserve("second", data, Cost.laplace(1000.0))
        with pytest.raises(BudgetError):
            again.reserve("third", data, ONE)
        assert [e.body["order"] for e in again.history() if e.kind == "reserve"] == [1024.0, 1024.0]
        again.set_cap(data, Cap(1.001, 1e-5))
        assert fill(again, data, ONE) >= 20


def test_an_old_ledger_at_a_good_order_keeps_its_budget(ledger: Ledger) -> None:
    data, k = new_data(ledger), account.ORDERS.index(18.0)
    old_reserve(ledger, "first", data, plan=ONE, order=18.0)
    assert 1 + fill(ledger, data, ONE) == budget(CAP, k) // units(ONE)[k]


def test_an_old_plan_by_pld_stays_alone(ledger: Ledger) -> None:
    data = new_data(ledger)
    old_reserve(ledger, "first", data, plan=TAIL, order=18.0, rule="pld")
    ledger.release("first", data, "first", TAIL, b"x")
    ledger.close("first")
    with pytest.raises(BudgetError):
        ledger.reserve("second", data, ONE)


# Words and extremes


def test_a_refusal_says_both_epsilons(ledger: Ledger) -> None:
    data = new_data(ledger)
    sigma = account.calibrate(lambda s: Cost.gaussian(s, times=10), 0.99, CAP.delta)
    spend(ledger, "small", data, plan=Cost.gaussian(100.0))
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("r", data, Cost.gaussian(sigma, times=10))
    tight = account.epsilon(Cost.gaussian(sigma, times=10), CAP.delta)
    text = str(caught.value)
    assert f"run 'r' asks for epsilon {tight:.4g} (1." in text
    assert "as the ledger's filter counts it)" in text
    assert f"data set {data} has 0.169 % spent or reserved of its cap of epsilon 1 at" in text


@pytest.mark.parametrize(
    "plan",
    [
        Cost.gaussian(1e6, 1e-12, times=10**18),
        Cost.gaussian(1e3, 1e-3, times=10**13),
        Cost.laplace(1e5, times=10**9),
        Cost.gaussian(1e-3, times=10**18),
        Cost.gaussian(1e6, times=10**18),
        Cost.laplace(1e300, times=10**18),
    ],
    ids=Cost.describe,
)
def test_a_plan_of_absurd_length_is_answered(ledger: Ledger, plan: Cost) -> None:
    """A billion billion uses were composed one by one by PLD: no answer in five minutes."""
    data = new_data(ledger)
    with pytest.raises(BudgetError, match="asks for"):
        ledger.reserve("r", data, plan)
    assert rules(ledger) == []


def test_a_budget_of_nothing_admits_nothing() -> None:
    cap, least = Cap(1e-6, 1e-100), Cost.laplace(1e300)
    assert {budget(cap, k, delta) for k, delta in orders(cap).items()} == {0}
    assert min(units(least)) == 1
    with pytest.raises(BudgetError):
        admission.admit("r", "a", plan=least * 2, cap=cap, order=None, standing=[least])
    for order in range(len(account.ORDERS)):
        with pytest.raises(BudgetError):
            admission.admit("r", "a", plan=least, cap=cap, order=order, standing=[least])


def test_no_cap_holds_the_infinite() -> None:
    """A cap of 1e50 had more room than the integer that stands for infinity; one of 1e300 was an OverflowError."""
    for epsilon in (1e50, 1e300):
        cap = Cap(epsilon, 1e-5)
        for standing in ([], [ONE]):
            with pytest.raises(BudgetError):
                admission.admit("r", "a", plan=Cost.gaussian(1e-9), cap=cap, order=None, standing=standing)
            assert admission.admit("r", "a", plan=ONE, cap=cap, order=None, standing=standing) == ("rdp", None)


def test_exactly_the_budget_passes_and_one_unit_more_does_not() -> None:
    [(k, delta), *_] = orders(CAP).items()
    room = budget(CAP, k, delta)
    held = [10**30] * len(account.ORDERS)
    for amount, fits in ((room, True), (room + 1, False)):
        held[k] = amount
        assert (admission._share(CAP, None, held) <= 1) is fits
    assert room < SCALE * CAP.epsilon


def test_replace_one_has_its_own_cap(ledger: Ledger) -> None:
    cap = Cap(1.0, 1e-5, relation="replace-one")
    data = new_data(ledger, cap)
    n = fill(ledger, data, Cost.gaussian(20.0, relation="replace-one"))
    assert 4 * n <= by_filter(ONE, CAP) <= 4 * (n + 1)  # twice the sensitivity, four times the RDP
    with pytest.raises(BudgetError, match="add-remove"):
        ledger.reserve("r", data, ONE)
    with pytest.raises(UserError, match="add-remove"):
        Cost.parallel([Cost.gaussian(20.0, relation="replace-one")])


def test_two_runs_of_classes_add_the_worst_pair(ledger: Ledger) -> None:
    """Index by index, the sum of the two was smaller than what a record in the dear class of both has paid."""
    data = new_data(ledger, None)
    dear, cheap = Cost.gaussian(1.0), Cost.gaussian(10.0)
    spend(ledger, "one", data, plan=Cost.parallel([dear, cheap]))
    spend(ledger, "two", data, plan=Cost.parallel([cheap, dear]))
    assert account.epsilon(ledger.spent(data), 1e-5) == account.epsilon(dear * 2, 1e-5) > 6.5
    assert [account.epsilon(cost, 1e-5) for cost in ledger.status()[0].spent] == [account.epsilon(dear * 2, 1e-5)]


@pytest.mark.parametrize(("unit", "relation"), [("", "add-remove"), (" ", "add-remove"), ("record", "swap")])
def test_a_cap_protects_a_unit_under_a_relation(unit: str, relation: str) -> None:
    with pytest.raises(UserError, match=r"Expected a (unit|relation)"):
        Cap(1.0, 1e-5, unit, relation)  # type: ignore[arg-type]


def test_caps_that_protect_different_units_have_no_strictest() -> None:
    caps: dict[str, Cap | None] = {"ds1": Cap(1.0, 1e-5), "ds2": Cap(2.0, 1e-6), "ds3": None}
    assert admission.strictest(caps) == Cap(1.0, 1e-6)
    assert admission.strictest({"ds3": None}) is None
    with pytest.raises(UserError, match="ds1, ds2, ds3, ds4 whose caps protect different units"):
        admission.strictest({**caps, "ds4": Cap(1.0, 1e-5, "patient")})


def test_what_stands_in_another_unit_or_without_a_guarantee_is_not_held_by_a_cap() -> None:
    assert admission.holds(CAP, order=None, standing=[ONE])
    for other in (Cost.gaussian(1000.0, unit="patient"), Cost.non_private()):
        assert not admission.holds(CAP, order=None, standing=[ONE, other])


def test_a_declared_plan_that_the_filter_holds_needs_no_place_of_its_own() -> None:
    """After its cap was raised, say."""
    wide = Cap(50.0, 1e-5)
    alone = admission.used(wide, order=None, standing=[TAIL], declared=None)
    assert 0 < alone <= 1
    assert admission.used(wide, order=None, standing=[TAIL], declared=TAIL) == alone
