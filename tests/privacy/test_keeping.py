"""What the keeper of a ledger does by hand: caps, and runs that were given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.keeping import close_run, set_cap

ONE = Cost.gaussian(5.0, unit="patient")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with a data set of which nothing was spent, and one on which two runs hold budget."""
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.dataset("new", records=[b"1"])
        used = ledger.dataset("used", records=[b"2"])
        for run in ("run-a", "run-b"):
            ledger.reserve(run, used, ONE * 2)
            ledger.release(run, used, run, ONE, b"x")
        return ledger.path


def test_a_cap_before_anything_was_spent_is_of_records(path: Path) -> None:
    assert set_cap(path, "new", 2.0).cap == Cap(2.0, 1e-5)
    assert set_cap(path, "ds1", 3.0, 1e-6).cap == Cap(3.0, 1e-6)
    assert set_cap(path, "new", 4.0).cap == Cap(4.0, 1e-6), "without a delta, that of the cap before"


def test_a_later_cap_keeps_the_unit_that_was_spent(path: Path) -> None:
    assert set_cap(path, "used", 2.0).cap == Cap(2.0, 1e-5, "patient")


def test_an_unknown_data_set_is_named_beside_the_known(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No data set 'x' in the ledger \(known: ds1 \(new\), ds2 \(used\)\)"):
        set_cap(path, "x", 2.0)
    with Ledger.open(tmp_path / "empty.sqlite") as ledger:
        empty = ledger.path
    with pytest.raises(UserError, match=r"\(known: none\)"):
        set_cap(empty, "x", 2.0)


def test_one_run_is_closed_and_what_it_released_stays(path: Path) -> None:
    for begins, found in (("run-", 2), ("other", 0)):
        with pytest.raises(UserError, match=f"found {found}"):
            close_run(path, begins)
    close_run(path, "run-a")
    with Ledger.open(path, create=False) as ledger:
        used = ledger.status()[1]
        assert (used.open_runs, used.closed_runs, used.releases) == (("run-b",), ("run-a",), 2)


def test_no_other_cap_goes_beyond_the_one_that_was_set_by_hand(path: Path) -> None:
    """The bug: a site's own file, read at every request, takes back what the ledger's keeper has decided."""
    set_cap(path, "new", 2.0)
    with Ledger.open(path) as ledger:
        assert ledger.set_cap("ds1", Cap(8.0, 1e-6)) == Cap(2.0, 1e-6) == ledger.cap("ds1")
        assert ledger.set_cap("ds1", None) == Cap(2.0, 1e-5), "nor does asking for none"
        assert ledger.set_cap("ds1", Cap(1.0, 1e-5)) == Cap(1.0, 1e-5), "a smaller one holds"
        assert ledger.status()[0].by_hand == Cap(2.0, 1e-5)
        assert ledger.set_cap("ds1", Cap(9.0, 1e-5)) == Cap(2.0, 1e-5)
        assert ledger.set_cap("ds2", Cap(9.0, 1e-5, "patient")) == Cap(9.0, 1e-5, "patient"), "of the other nothing"
    assert set_cap(path, "new", 9.0).cap == Cap(9.0, 1e-5), "the keeper may raise it"
    set_cap(path, "new", 9.0)
    with Ledger.open(path) as ledger:
        assert ledger.set_cap("ds1", Cap(8.0, 1e-5)) == Cap(8.0, 1e-5)
        ledger.verify()


def test_the_cap_that_stands_is_set_by_hand_too(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.set_cap("ds1", Cap(2.0, 1e-5))
    set_cap(path, "new", 2.0)
    with Ledger.open(path) as ledger:
        assert ledger.set_cap("ds1", Cap(3.0, 1e-5)) == Cap(2.0, 1e-5)


def test_data_that_turn_out_to_be_one_keep_the_smaller(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.dataset("third", records=[b"3"])
    set_cap(path, "new", 2.0, 1e-5)
    set_cap(path, "third", 3.0, 1e-6)
    with Ledger.open(path) as ledger:
        ledger.dataset("bridge", records=[b"1", b"3"])
        assert ledger.status()[0].by_hand == Cap(2.0, 1e-6)
        assert ledger.set_cap("ds1", Cap(5.0, 1e-4)) == Cap(2.0, 1e-6)
