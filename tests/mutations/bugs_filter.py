"""Bugs of the ledger's numbers: admission, sums over runs, the place of the user's ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import admission, place
from prismfl.privacy.ledger.balances import Balances
from prismfl.privacy.ledger.book import Ledger
from tests.mutations.planting import Bug, Check
from tests.privacy import test_admission as tests
from tests.privacy import test_cost as cost_tests
from tests.privacy import test_place as place_tests


def with_ledger(test: object) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True)
        admission.orders.cache_clear()
        with Ledger.open(folder / "site.ledger") as ledger:
            test(ledger)  # type: ignore[operator]

    return check


def plain(test: object, *arguments: object) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        admission.orders.cache_clear()
        test(*arguments)  # type: ignore[operator]

    return check


def spoiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    tests.test_no_first_plan_spoils_what_later_ones_can_have(folder, Cost.gaussian(0.6, 1e-6))


def old_ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    with Ledger.open(folder / "site.ledger") as ledger:
        tests.test_an_old_ledger_goes_on_at_its_order_until_its_cap_is_changed(ledger, folder)


def in_place(test: object) -> Check:
    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True)
        test(folder, monkeypatch)  # type: ignore[operator]

    return check


BUGS = [
    Bug(
        "a cheap first plan locks the ledger",
        admission,
        "admit",
        "if declared is not None and order is None:",
        "if False:",
        spoiled,
    ),
    Bug(
        "each order of the filter has all of delta",
        admission,
        "orders",
        "part * cap.delta",
        "cap.delta",
        plain(tests.test_the_orders_follow_from_the_cap_and_share_its_delta, tests.CAP),
    ),
    Bug(
        "beside a declared plan the filter has all of delta",
        admission,
        "_beside",
        "epsilon=left, delta=cap.delta / 2",
        "epsilon=left",
        with_ledger(tests.test_others_go_beside_a_cheap_plan_that_the_filter_cannot_hold),
    ),
    Bug(
        "a declared plan is forgotten when it is closed, though others went beside it",
        Balances,
        "_holders",
        "run.plan if run is kept else run.held",
        "run.held",
        with_ledger(tests.test_a_plan_by_pld_stays_when_others_were_admitted_beside_it),
    ),
    Bug(
        "an old ledger becomes laxer",
        admission,
        "_filter",
        "orders(cap) if order is None else {order: cap.delta}",
        "orders(cap)",
        old_ledger,
    ),
    Bug(
        "a budget of nothing holds one unit",
        admission,
        "_share",
        "Fraction(held[k], room) if room else math.inf",
        "Fraction(held[k], max(room, 2))",
        plain(tests.test_a_budget_of_nothing_admits_nothing),
    ),
    Bug(
        "a huge cap holds the infinite",
        admission,
        "budget",
        "min(room, _MOST_ROOM)",
        "min(room, 1e200)",
        plain(tests.test_no_cap_holds_the_infinite),
    ),
    Bug(
        "runs of classes add index by index",
        Balances,
        "spent",
        "old.beside(cost)",
        "old + cost",
        with_ledger(tests.test_two_runs_of_classes_add_the_worst_pair),
    ),
    Bug(
        "too many pairs of branches become the first of them",
        Cost,
        "beside",
        "(_around(mine),), (_around(theirs),)",
        "mine[:1], theirs[:1]",
        plain(cost_tests.test_the_sum_of_two_runs_covers_every_record, 9),
    ),
    Bug(
        "floats of endless plans round to nothing",
        account,
        "_long_rdp",
        "1e-14 *",
        "0 *",
        with_ledger(
            lambda ledger: tests.test_a_plan_of_absurd_length_is_answered(
                ledger, Cost.gaussian(1e6, 1e-12, times=10**18)
            )
        ),
    ),
    Bug(
        "the refusal quotes another epsilon than the tables",
        admission,
        "_refusal",
        "account.epsilon(plan, cap.delta):.4g",
        "account.epsilon_rdp(plan, cap.delta):.4g",
        with_ledger(tests.test_a_refusal_says_both_epsilons),
    ),
    Bug(
        "the ledger's folder stays open to others",
        place,
        "_for_owner_alone",
        "folder.chmod(0o700)",
        "pass",
        in_place(
            lambda folder, patch: place_tests.test_a_folder_that_others_may_read_is_closed_to_them(folder, patch, True)
        ),
    ),
    Bug(
        "the user's ledger lies in the current folder",
        place,
        "_folder",
        "if not folder.is_absolute():",
        "if False:",
        in_place(
            lambda folder, patch: place_tests.test_the_place_does_not_follow_the_current_folder(folder, patch, ".")
        ),
    ),
]
