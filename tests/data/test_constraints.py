"""Declared relations between columns: read by a pattern, kept by every row, and never at the cost of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismfl.data import Column
from prismfl.data.constraints import Constraint, RuleKeeper, measured
from prismfl.errors import UserError

START, END = Column("start", min=0, max=100, integer=True), Column("end", min=0, max=100, integer=True)
LAST = Column("last", min=0, max=100, integer=True)
ZIP = Column("zip", "categorical", categories=("10", "20", "21", "30"), missing=True)
STATE = Column("state", "categorical", categories=("A", "B", "C"))
PAIRS = (("10", "A"), ("20", "B"), ("21", "B"))
COLUMNS = {column.name: column for column in (START, END, LAST, ZIP, STATE)}


def rule(words: str, repair: str = "auto") -> Constraint:
    return Constraint.parse(words, repair=repair, where="s")


def keeper(*rules: Constraint, seed: int = 0) -> RuleKeeper:
    for one in rules:
        one.check(list(COLUMNS.values()))
    return RuleKeeper(COLUMNS, rules, np.random.default_rng(seed))


def drawn(seed: int, count: int = 400) -> dict[str, Any]:
    g = np.random.default_rng(seed)
    numbers = {name: g.integers(0, 101, count).astype(float) for name in ("start", "end", "last")}
    numbers["end"][g.random(count) < 0.1] = np.nan
    return {**numbers, "zip": g.integers(-1, 4, count), "state": g.integers(0, 3, count)}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("start <= end", ("start", "end", False)),
        ("  start<end ", ("start", "end", True)),
        ("start >= end", ("end", "start", False)),
        ("start > end", ("end", "start", True)),
        ('"a <= b" <= "day of entry"', ("a <= b", "day of entry", False)),
        ("day of entry <= day of exit", ("day of entry", "day of exit", False)),
    ],
)
def test_rules_are_read_by_their_words(words: str, found: tuple[str, str, bool]) -> None:
    made = rule(words)
    assert (made.left, made.right, made.strict) == found


@pytest.mark.parametrize(
    "words",
    [
        "",
        "start",
        "start <=",
        "start == end",
        "a <= b <= c",
        "__import__('os').system('x')",
        "start <= end; drop",
        "\n" * 9,
    ],
)
def test_what_is_no_rule_is_refused_and_never_run(words: str) -> None:
    with pytest.raises(UserError) as error:
        rule(words).check(list(COLUMNS.values()))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            Constraint("start", "nothing"),
            "Expected declared columns in the constraint 'start <= nothing', got 'nothing'.",
        ),
        (Constraint("start", "zip"), "Expected two numbers, two dates or two times"),
        (Constraint("start", "start"), "Expected two columns in the constraint"),
        (Constraint("zip", "state", pairs=(("10", "Z"),)), "Value 'Z' of the constraint .* is no declared category"),
        (Constraint("start", "end", pairs=(("10", "A"),)), "Expected two columns with categories"),
    ],
)
def test_rules_that_cannot_hold_are_refused(made: Constraint, line: str) -> None:
    with pytest.raises(UserError, match=line):
        made.check(list(COLUMNS.values()))


@pytest.mark.parametrize(
    ("within", "line"),
    [
        (0.0, r"Expected within > 0 in the constraint 'start <= end'\."),
        (-3.0, "Expected within > 0"),
        (float("inf"), "Expected within > 0"),
        (float("nan"), "Expected within > 0"),
    ],
)
def test_a_difference_that_cannot_be_is_refused(within: float, line: str) -> None:
    with pytest.raises(UserError, match=line):
        Constraint("start", "end", within=within).check([START, END])


def test_what_may_be_missing_on_the_left_may_be_on_the_right() -> None:
    gone = Column("start", min=0, max=100, missing=True)
    with pytest.raises(UserError, match=r"Expected missing = true for 'end'.*'start', which may be missing"):
        Constraint("start", "end", within=5).check([gone, END])
    Constraint("start", "end", within=5).check([gone, Column("end", min=0, max=100, missing=True)])


def test_differences_come_in_an_order_in_which_the_left_is_known() -> None:
    rules = [Constraint("end", "last", within=5), Constraint("start", "end", within=5), Constraint("start", "last")]
    assert [one.right for one in measured(rules)] == ["end", "last"]
    with pytest.raises(UserError, match="got a circle of start, end"):
        measured([Constraint("end", "start", within=5), Constraint("start", "end", within=5)])
    with pytest.raises(UserError, match="within in one constraint of a column"):
        measured([Constraint("end", "last", within=5), Constraint("start", "last", within=5)])


def test_bounds_that_leave_nothing_are_refused() -> None:
    late, early = Column("late", min=10, max=20), Column("early", min=0, max=5)
    with pytest.raises(UserError, match=r"The declared bounds leave no values for the constraint 'late <= early'\."):
        Constraint("late", "early").check([late, early])


@given(st.integers(0, 30), st.sampled_from(["auto", "match", "resample", "swap", "clip"]), st.booleans())
def test_every_row_keeps_every_rule(seed: int, repair: str, strict: bool) -> None:
    made = keeper(
        rule("start < end" if strict else "start <= end", repair),
        rule("end <= last", repair),
        Constraint("zip", "state", pairs=PAIRS),
        seed=seed,
    )
    before = drawn(seed)
    after = made.enforce(before)
    assert made.all_hold(after).all()
    assert before["start"].tolist() == drawn(seed)["start"].tolist()  # what came in is left alone
    for name in ("start", "end", "last"):
        assert np.nanmin(after[name]) >= 0
        assert np.nanmax(after[name]) <= 100


def test_rows_that_keep_the_rules_stay_what_they_were() -> None:
    made = keeper(rule("start <= end", "resample"))
    before = drawn(1)
    good = made.holds(made.constraints[0], before)
    after = made.enforce(before)
    for name in before:
        assert np.array_equal(before[name][good], after[name][good], equal_nan=before[name].dtype.kind == "f")


def test_a_resampled_pair_is_one_that_was_there() -> None:
    """What is drawn anew keeps the relation between the two as rows that keep the rule have it."""
    before = {"start": np.array([1.0, 9.0, 3.0]), "end": np.array([2.0, 4.0, 5.0])}
    made = RuleKeeper(COLUMNS, (rule("start <= end", "resample"),), np.random.default_rng(0)).enforce(before)
    assert (made["start"][1], made["end"][1]) in {(1.0, 2.0), (3.0, 5.0)}


def test_a_rule_that_often_fails_leaves_both_distributions_alone() -> None:
    """Days of entry, and of leaving four days later, drawn without knowing of each other: half of the rows fail."""
    g = np.random.default_rng(0)
    start = g.integers(0, 90, 2000).astype(float)
    end = g.permutation(start) + g.integers(0, 9, 2000)
    made = keeper(rule("start <= end")).enforce({"start": start, "end": end})
    assert np.array_equal(made["start"], start)
    assert np.mean(made["end"] == np.sort(end)[np.argsort(np.argsort(start, kind="stable"))]) > 0.9
    assert abs(float(np.mean(made["end"] - made["start"])) - 4.0) < 0.5
    seldom = keeper(rule("start <= end")).enforce({"start": np.append(end, 99.0), "end": np.append(end, 1.0)})
    assert np.array_equal(seldom["end"][:-1], end)  # one row of many: no other is touched


def test_swapped_and_cut_by_hand() -> None:
    before = {"start": np.array([9.0, 1.0]), "end": np.array([4.0, 2.0])}
    swapped = RuleKeeper(COLUMNS, (rule("start <= end", "swap"),), np.random.default_rng(0)).enforce(before)
    assert (swapped["start"].tolist(), swapped["end"].tolist()) == ([4.0, 1.0], [9.0, 2.0])
    cut = RuleKeeper(COLUMNS, (rule("start < end", "clip"),), np.random.default_rng(0)).enforce(before)
    assert (cut["start"].tolist(), cut["end"].tolist()) == ([9.0, 1.0], [10.0, 2.0])


def test_the_left_of_a_pair_stays_where_it_has_a_partner() -> None:
    made = keeper(Constraint("zip", "state", pairs=PAIRS))
    before = drawn(3)
    after = made.enforce(before)
    known = before["zip"] < 3  # "30" is in no state
    assert np.array_equal(after["zip"][known], before["zip"][known])
    assert set(after["zip"].tolist()) == {-1, 0, 1, 2}


@pytest.mark.parametrize("fixed", [("start",), ("end",), ("zip",), ("state",)])
def test_what_is_fixed_is_not_changed(fixed: tuple[str, ...]) -> None:
    made = keeper(rule("start <= end"), Constraint("zip", "state", pairs=(*PAIRS, ("30", "C"))))
    before = drawn(4)
    after = made.enforce(before, fixed=fixed)
    assert np.array_equal(before[fixed[0]], after[fixed[0]], equal_nan=fixed[0] in ("start", "end"))
    assert made.all_hold(after).all()
