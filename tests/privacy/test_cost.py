"""Costs: canonical values, addition rules, exact JSON."""

import json
import math
import random

import pytest

from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost, Mechanism

STEP = Cost.gaussian(1.5, 0.04)


def test_equal_compositions_are_equal_values_whatever_the_order() -> None:
    a = Cost.gaussian(2.0) + STEP * 3 + Cost.gaussian(2.0)
    b = STEP + Cost.gaussian(2.0, times=2) + STEP * 2
    assert a == b
    assert hash(a) == hash(b)
    assert a.branches == (((Mechanism("gaussian", 1.5, 0.04), 3), (Mechanism("gaussian", 2.0), 2)),)


def test_zero_is_neutral_and_multiplication_counts() -> None:
    assert STEP + Cost.zero() == STEP == Cost.zero() + STEP
    assert (STEP * 0).is_zero
    assert STEP * 7 == 7 * STEP == sum([STEP] * 6, STEP)
    assert Cost.gaussian(1.0, times=0).is_zero
    assert not STEP.is_zero


@pytest.mark.parametrize("make", [Cost.gaussian, Cost.laplace])
def test_noise_zero_is_non_private_and_absorbs(make) -> None:  # type: ignore[no-untyped-def]
    none = make(0.0)
    assert none == Cost.non_private()
    assert not (STEP + none).private
    assert not (none + STEP * 3).private
    assert (none * 4) == none
    assert make(0.0, times=0).is_zero
    assert not none.is_zero


def test_units_and_relations_never_mix() -> None:
    with pytest.raises(UserError, match="record and per client"):
        STEP + Cost.gaussian(1.0, unit="client")
    with pytest.raises(UserError, match="relations differ"):
        STEP + Cost.gaussian(1.0, relation="replace-one")
    with pytest.raises(UserError, match="units differ"):
        Cost.non_private("patient_id") + STEP
    with pytest.raises(UserError, match="units differ"):
        Cost.parallel([STEP, Cost.gaussian(1.0, unit="patient_id")])


def test_parallel_branches_add_branchwise_or_by_broadcast() -> None:
    parts = [Cost.gaussian(s) for s in (1.0, 2.0, 3.0)]
    wide = Cost.parallel(parts)
    assert wide + wide == Cost.parallel([part * 2 for part in parts])
    assert wide + STEP == STEP + wide == Cost.parallel([part + STEP for part in parts])
    assert wide * 5 == Cost.parallel([part * 5 for part in parts])
    with pytest.raises(UserError, match="3 and of 2"):
        wide + Cost.parallel(parts[:2])
    with pytest.raises(UserError, match="add-remove"):
        Cost.parallel([Cost.gaussian(1.0, relation="replace-one")])
    with pytest.raises(UserError, match="one branch each"):
        Cost.parallel([wide, STEP])
    with pytest.raises(UserError, match="at least one"):
        Cost.parallel([])
    assert not Cost.parallel([STEP, Cost.non_private()]).private


def test_two_runs_add_in_every_pair_of_branches() -> None:
    """Branch 0 of one run and branch 1 of another may hold the same record: index by index it was 4.38 for 6.57."""
    dear, cheap = Cost.gaussian(1.0), Cost.gaussian(10.0)
    one, other = Cost.parallel([dear, cheap]), Cost.parallel([cheap, dear])
    assert one.beside(other) == other.beside(one) == dear * 2
    assert one.beside(one) == dear * 2
    sampled = Cost.gaussian(0.9, 0.1, times=7)
    mixed = Cost.parallel([dear, sampled])  # neither covers the other
    assert set(mixed.beside(mixed).branches) == {c.branches[0] for c in (dear * 2, sampled * 2, dear + sampled)}
    assert one.beside(Cost.zero()) == dear
    assert not one.beside(Cost.non_private()).private
    with pytest.raises(UserError, match="units differ"):
        one.beside(Cost.gaussian(1.0, unit="client"))


@pytest.mark.parametrize("branches", [2, 3, 4, 5, 9])
def test_the_sum_of_two_runs_covers_every_record(branches: int) -> None:
    """Whichever branch a record lies in in either run, its RDP is within the sum's, also where pairs are too many."""
    draw = random.Random(branches)

    def part() -> Cost:
        sampled = Cost.gaussian(draw.choice([0.8, 1.5]), draw.choice([0.1, 0.2]), times=draw.randint(0, 3))
        return sampled + Cost.gaussian(draw.choice([1.0, 2.0, 3.0]), times=draw.randint(0, 2))

    # More noise and more uses: no branch covers another, and 81 pairs are too many.
    stairs = Cost.parallel([Cost.gaussian(1.0 + k, times=2**k) for k in range(branches)])
    one, other = (Cost.parallel([part() for _ in range(branches)]) + stairs for _ in range(2))
    bound = account.rdp_curve(one.beside(other))
    for a in one.branches:
        for b in other.branches:
            curve = account.rdp_curve(Cost((a + b,)))
            assert all(x <= y * (1 + 1e-9) for x, y in zip(curve, bound, strict=True))


def test_more_uses_than_numbers_hold_are_refused() -> None:
    with pytest.raises(UserError, match="at most 1e"):
        Cost.gaussian(1.0, times=10**400)
    with pytest.raises(UserError, match="at most 1e"):
        Cost.gaussian(1.0, times=10**18) * 2


def test_covers_is_a_comparison_of_counts() -> None:
    plan = STEP * 10 + Cost.gaussian(2.0)
    assert plan.covers(plan)
    assert plan.covers(STEP * 10)
    assert plan.covers(Cost.zero())
    assert not plan.covers(STEP * 11)
    assert not plan.covers(Cost.gaussian(9.0))
    assert not plan.covers(Cost.non_private())
    assert not plan.covers(Cost.gaussian(2.0, unit="client"))
    assert Cost.non_private().covers(plan)
    wide = Cost.parallel([STEP * 3, STEP * 5])
    assert wide.covers(STEP * 3)
    assert not wide.covers(STEP * 4)
    assert not wide.covers(Cost.parallel([STEP] * 3))


@pytest.mark.parametrize(
    "cost",
    [
        Cost.zero("client"),
        Cost.non_private("patient_id", "replace-one"),
        Cost.gaussian(0.1 + 0.2, 1 / 3, times=10**12),
        Cost.parallel([Cost.laplace(5e-324), STEP + Cost.laplace(1e300)]),
    ],
)
def test_json_round_trip_is_exact(cost: Cost) -> None:
    assert Cost.from_json(json.loads(json.dumps(cost.to_json()))) == cost


@pytest.mark.parametrize(
    "change",
    [
        {"relation": "sideways"},
        {"unit": ""},
        {"private": 1},
        {"branches": [[{"kind": "gaussian", "noise": 1.0, "rate": 1.0}]]},
        {"branches": [[{"kind": "cauchy", "noise": 1.0, "rate": 1.0, "times": 1}]]},
        {"branches": [[{"kind": "gaussian", "noise": "1", "rate": 1.0, "times": 1}]]},
        {"branches": [[{"kind": "gaussian", "noise": 1.0, "rate": 1.0, "times": -1}]]},
        {"branches": []},
        {"branches": 3},
    ],
)
def test_malformed_json_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError):
        Cost.from_json({**STEP.to_json(), **change})


@pytest.mark.parametrize(
    ("noise", "rate", "times"),
    [
        (-1.0, 1.0, 1),
        (math.nan, 1.0, 1),
        (math.inf, 1.0, 1),
        (1.0, 0.0, 1),
        (1.0, 1.0000001, 1),
        (1.0, math.nan, 1),
        (1.0, 1.0, -1),
        (1.0, 1.0, 1.5),
        (1.0, 1.0, True),
    ],
)
def test_bad_numbers_are_value_errors(noise: float, rate: float, times: int) -> None:
    with pytest.raises(ValueError):
        Cost.gaussian(noise, rate, times=times)


def test_describe_is_one_short_line() -> None:
    assert (STEP * 2250).describe() == "2250 x Gaussian(noise 1.5, rate 0.04); unit record, add-remove"
    assert Cost.non_private("client").describe() == "no DP guarantee; unit client, add-remove"
    assert "in parallel over 10 classes" in Cost.parallel([STEP] * 10).describe()


def test_a_cost_adds_to_costs_and_multiplies_by_whole_numbers_only() -> None:
    one = Cost.gaussian(2.0)
    for other in (1, None, "cost"):
        with pytest.raises(TypeError):
            one + other  # type: ignore[operator]
    for times in (1.5, True, "2"):
        with pytest.raises(TypeError):
            one * times  # type: ignore[operator]
    with pytest.raises(UserError, match="times >= 0, got -1"):
        one * -1
    assert (one * 0).is_zero


def test_a_private_cost_has_a_branch() -> None:
    with pytest.raises(UserError, match="at least one branch"):
        Cost(())


@pytest.mark.parametrize("times", [1.0, True, "1"])
def test_uses_are_counted_in_whole_numbers(times: object) -> None:
    mechanism = Cost.gaussian(2.0).branches[0][0][0]
    with pytest.raises(UserError, match="whole number"):
        Cost((((mechanism, times),),))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="times >= 0, got -1"):
        Cost((((mechanism, -1),),))


def test_a_noise_is_a_number() -> None:
    for noise in (True, "1", None):
        with pytest.raises(UserError, match="number"):
            Cost.gaussian(noise)  # type: ignore[arg-type]


def test_classes_compose_in_parallel_under_add_remove_alone() -> None:
    dear, cheap = (Cost.gaussian(noise, relation="replace-one").branches[0] for noise in (1.0, 2.0))
    with pytest.raises(UserError, match="needs relation add-remove, got replace-one"):
        Cost((dear, cheap), relation="replace-one")


def test_of_many_classes_a_few_are_described() -> None:
    assert "or 2 more" in Cost.parallel([Cost.gaussian(1.0 + k) for k in range(5)]).describe()
    assert Cost.zero().describe().startswith("nothing spent")


def test_a_class_that_pays_nothing_is_described() -> None:
    assert "nothing" in Cost.parallel([Cost.gaussian(2.0), Cost.zero()]).describe()
