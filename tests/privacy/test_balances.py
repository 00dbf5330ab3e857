"""Balances: what a record pays over disjoint parts, and entries that nobody knows."""

from __future__ import annotations

import pytest

from prismfl.errors import LedgerError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.balances import Balances, Reserved
from prismfl.privacy.ledger.chain import Entry

A, B = Cost.gaussian(2.0), Cost.laplace(3.0)


def test_a_record_pays_for_the_worst_of_the_parts() -> None:
    """Parts that cannot be compared: the record lies in one of them, whichever."""
    run = Reserved("run", "ds1", A + B, "rdp", parts={"north": A, "south": B, "east": A})
    assert set(run.charged.branches) == {A.branches[0], B.branches[0]}
    worst = max(account.epsilon(A, 1e-5), account.epsilon(B, 1e-5))
    assert account.epsilon(run.charged, 1e-5) == pytest.approx(worst)
    assert Reserved("run", "ds1", A + A, "rdp", parts={"north": A, "south": A + A}).charged == A + A


def test_under_replace_one_parts_add_up() -> None:
    """A record that is replaced may leave one part and enter another."""
    a, b = Cost.gaussian(2.0, relation="replace-one"), Cost.laplace(3.0, relation="replace-one")
    assert Reserved("run", "ds1", a + b, "rdp", parts={"north": a, "south": b}).charged == a + b


def test_an_entry_of_a_later_version_is_refused() -> None:
    with pytest.raises(LedgerError, match=r"Entry 7 .* another version"):
        Balances().apply(Entry(7, "now", "gift", {}))
