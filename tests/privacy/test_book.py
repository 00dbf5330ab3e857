"""The ledger's book: releases that are charged first, held, approved and denied; runs that are closed; sums."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prismfl.errors import BudgetError, LedgerError, UserError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.sources import DEPLOYMENT, SIMULATION

ONE = Cost.gaussian(20.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "site.ledger") as opened:
        yield opened


@pytest.fixture
def data(ledger: Ledger) -> str:
    made = ledger.dataset("a", records=[b"1", b"2"])
    ledger.reserve("run", made, ONE * 10)
    return made


def charged(ledger: Ledger, data: str, round: int, *, memory: bytes = b"", held: bool = False) -> str:
    name = f"run/north/{round}"
    ledger.charge("run", data, name, ONE)
    ledger.fill(name, f"numbers {round}".encode(), memory, held=held)
    return name


# Charged, then made


def test_of_two_who_computed_a_release_both_send_the_first(ledger: Ledger, data: str) -> None:
    ledger.charge("run", data, "run/north/0", ONE)
    assert ledger.status_of("run/north/0") == "charged"
    assert ledger.outbox("run/north/0") is None
    assert ledger.fill("run/north/0", b"first") == b"first"
    assert ledger.fill("run/north/0", b"second") == b"first"
    assert ledger.status_of("run/north/0") == "made"
    assert ledger.status_of("run/north/1") is None
    assert len(ledger.charges()) == 1


def test_what_has_arrived_is_not_made_again(ledger: Ledger, data: str) -> None:
    name = charged(ledger, data, 0)
    ledger.confirm(name)
    ledger.confirm(name)
    assert sum(entry.kind == "confirm" for entry in ledger.history()) == 1
    with pytest.raises(BudgetError, match="that is final"):
        ledger.fill(name, b"other")


def test_a_simulations_release_need_not_be_kept_and_is_made_again_only_as_it_was(ledger: Ledger, data: str) -> None:
    ledger.charge("run", data, "run/north/0", ONE)
    assert ledger.fill("run/north/0", b"numbers", b"memory", keep=False) == b"numbers"
    assert ledger.outbox("run/north/0") is None
    assert ledger.remembered("run", "north", before=1) == b"memory"
    (charge,) = ledger.charges()
    assert (charge.status, charge.confirmed, charge.size) == ("made", True, 7)
    assert ledger.made_again("run/north/0", b"numbers") == b"numbers"
    with pytest.raises(BudgetError, match="other content"):
        ledger.made_again("run/north/0", b"others")
    ledger.charge("run", data, "run/north/1", ONE)
    with pytest.raises(BudgetError, match="is charged"):
        ledger.made_again("run/north/1", b"numbers")
    assert ledger.verify() == len(ledger.history())


def test_several_arrive_in_one_transaction(ledger: Ledger, data: str) -> None:
    names = [charged(ledger, data, round) for round in range(3)]
    assert ledger.waiting("run", "north", before=2) == names[:2]
    assert ledger.waiting("run", "south", before=2) == []
    ledger.confirm(*names)
    assert ledger.waiting("run", "north", before=3) == []
    assert [entry.body["release"] for entry in ledger.history() if entry.kind == "confirm"] == names
    assert ledger.verify() == len(ledger.history())
    with Ledger.open(ledger.path) as other:
        assert other.history() == ledger.history()


def test_what_a_run_was_charged_is_told_for_each_part(ledger: Ledger, data: str) -> None:
    for round, part in enumerate(("a", "b", "a")):
        ledger.charge("run", data, f"run/{part}/{round}", ONE, part=part)
    assert ledger.charged("run") == {"a": ONE * 2, "b": ONE}
    assert ledger.charged("other") == {}


def test_a_ledger_that_was_shut_opens_when_it_is_used_and_sees_what_others_wrote(ledger: Ledger, data: str) -> None:
    charged(ledger, data, 0)
    ledger.shut()
    ledger.shut()
    with Ledger.open(ledger.path) as other:
        charged(other, data, 1)
    assert [charge.release for charge in ledger.charges()] == ["run/north/0", "run/north/1"]
    ledger.shut()
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="is missing"):
        ledger.charges()
    assert not ledger.path.exists(), "a lost ledger is not begun anew"


def test_a_ledger_that_does_not_wait_for_the_disk_is_whole_and_gives_room_back(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.sqlite", lasting=False) as ledger:
        made = ledger.dataset("a", records=[b"1"])
        ledger.reserve("run", made, ONE)
        ledger.charge("run", made, "run/north/0", ONE)
        ledger.fill("run/north/0", bytes(1_000_000))
        ledger.confirm("run/north/0")
        ledger.shrink()
    assert (tmp_path / "a.sqlite").stat().st_size < 100_000
    with Ledger.open(tmp_path / "a.sqlite") as ledger:
        assert ledger.verify() == 6


def test_what_was_only_charged_cannot_arrive(ledger: Ledger, data: str) -> None:
    ledger.charge("run", data, "run/north/0", ONE)
    ledger.confirm("run/north/0")
    assert not ledger.charges()[0].confirmed
    with pytest.raises(UserError, match="No release"):
        ledger.confirm("nobody")
    with pytest.raises(UserError, match="No release"):
        ledger.approve("nobody")


def test_a_charge_that_came_to_nothing_is_final_unless_it_may_be_tried_again(ledger: Ledger, data: str) -> None:
    ledger.charge("run", data, "run/north/0", ONE)
    ledger.charge("run", data, "run/north/0", ONE, again=True)
    assert len(ledger.charges()) == 1
    with pytest.raises(BudgetError, match="final"):
        ledger.charge("run", data, "run/north/0", ONE)


# Held for a person


def test_a_person_lets_a_release_go(ledger: Ledger, data: str) -> None:
    name = charged(ledger, data, 0, memory=b"remembered", held=True)
    assert ledger.remembered("run", "north", before=1) is None
    ledger.approve(name)
    ledger.approve(name)
    assert sum(entry.kind == "approve" for entry in ledger.history()) == 1
    assert ledger.outbox(name) == b"numbers 0"
    assert ledger.remembered("run", "north", before=1) == b"remembered"
    with pytest.raises(UserError, match="is made, not held"):
        ledger.deny(name)


def test_what_is_denied_stays_charged_and_leaves_nothing(ledger: Ledger, data: str) -> None:
    name = charged(ledger, data, 0, memory=b"remembered", held=True)
    ledger.deny(name)
    ledger.deny(name)
    assert ledger.outbox(name) is None
    assert ledger.remembered("run", "north", before=1) is None
    assert ledger.spent(data) == ONE
    with pytest.raises(UserError, match="is denied, not held"):
        ledger.approve(name)
    with pytest.raises(BudgetError, match="is denied; that is final"):
        ledger.fill(name, b"other")
    assert ledger.verify() == len(ledger.history())


# What a site remembers, and for how long


def test_two_rounds_are_remembered_and_older_ones_dropped(ledger: Ledger, data: str) -> None:
    for round in range(4):
        charged(ledger, data, round, memory=f"after {round}".encode())
    remembered = [ledger.remembered("run", "north", before=round) for round in range(5)]
    assert remembered == [None, None, b"after 1", b"after 2", b"after 3"]
    kept = {row[0] for row in ledger._chain.db.execute("SELECT name FROM blobs WHERE name LIKE 'memory/%'")}
    assert kept == {f"memory/run/north/{round}" for round in (1, 2, 3)}


def test_a_closed_run_may_forget(ledger: Ledger, data: str) -> None:
    charged(ledger, data, 0, memory=b"remembered")
    ledger.close("run")
    assert ledger.remembered("run", "north", before=1) == b"remembered"
    ledger.close("run", forget=True)  # it is closed: nothing more happens
    assert sum(entry.kind == "close" for entry in ledger.history()) == 1
    ledger.reserve("other", data, ONE)
    ledger.charge("other", data, "other/north/0", ONE)
    ledger.fill("other/north/0", b"numbers", b"secret")
    ledger.close("other", forget=True)
    assert ledger.remembered("other", "north", before=1) is None
    assert not list(ledger._chain.db.execute("SELECT name FROM blobs WHERE data = ?", (b"secret",)))


def test_runs_that_rest_for_long_are_closed(ledger: Ledger, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.reserve("kept", data, ONE)
    charged(ledger, data, 0, memory=b"remembered")
    assert ledger.expire(hours=1.0, keep="kept") == []
    later = datetime.now(UTC) + timedelta(hours=2)

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return later

    monkeypatch.setattr("prismfl.privacy.ledger.book.datetime", Later)
    assert ledger.expire(hours=1.0, keep="kept") == ["run"]
    [status] = ledger.status()
    assert (status.open_runs, status.closed_runs) == (("kept",), ("run",))


# Sums


def test_costs_of_several_units_have_no_sum(ledger: Ledger, data: str) -> None:
    assert ledger.spent(data) == Cost.zero()
    charged(ledger, data, 0)
    by_patient = Cost.gaussian(20.0, unit="patient")
    ledger.reserve("patients", data, by_patient)
    ledger.release("patients", data, "patients/0", by_patient, b"x")
    with pytest.raises(UserError, match="do not add"):
        ledger.spent(data)
    total = ledger.total_so_far(data, 1e-5)
    assert total["epsilon"] is None
    assert set(total["by_unit"]) == {"record, add-remove", "patient, add-remove"}


def test_a_total_says_which_noise_was_seeded(ledger: Ledger, data: str) -> None:
    for round, noise in enumerate((DEPLOYMENT, SIMULATION, SIMULATION)):
        ledger.charge("run", data, f"run/north/{round}", ONE, noise=noise)
    total = ledger.total_so_far(data, 1e-5)
    assert (total["releases"], total["seeded_releases"]) == (3, 2)
    assert total["epsilon"] > 0


# Data sets and caps


def test_a_cap_may_be_taken_away_and_the_same_again_is_no_entry(ledger: Ledger, data: str) -> None:
    for cap in (Cap(9.0, 1e-5), Cap(9.0, 1e-5), None, None):
        ledger.set_cap(data, cap)
        assert ledger.cap(data) == cap
    assert sum(entry.kind == "cap" for entry in ledger.history()) == 2


def test_runs_on_data_that_became_one_stop_at_the_cap_of_both(ledger: Ledger) -> None:
    """Each was admitted on its own; together they are over the cap that both data sets have."""
    cap, plan = Cap(1.0, 1e-5), Cost.gaussian(4.0)
    for name in ("a", "b"):
        own = ledger.dataset(name, records=[name.encode()], cap=cap)
        ledger.reserve(f"run {name}", own, plan)
    both = ledger.dataset("all", records=[b"a", b"b"])
    with pytest.raises(BudgetError, match="together are over its cap"):
        ledger.release("run b", both, "second", plan, b"y")
    assert ledger.charges() == []


def test_data_that_somebody_else_declares_meanwhile_is_declared_once(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes see that the data are new; the second finds in its transaction that they are not."""
    with Ledger.open(tmp_path / "site.ledger") as other:
        first = other.dataset("a", records=[b"1"])
        monkeypatch.setattr(ledger, "_known", lambda *given: False)
        assert ledger.dataset("a", records=[b"1"]) == first
        assert sum(entry.kind in ("dataset", "records") for entry in other.history()) == 1


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 501, None])
def test_names_are_printable_and_short(ledger: Ledger, data: str, name: str) -> None:
    with pytest.raises(UserError, match="printable run name"):
        ledger.reserve(name, data, ONE)


def test_what_is_held_is_the_plan_of_an_open_run_and_what_a_closed_one_released(tmp_path: Path) -> None:
    one = Cost.gaussian(5.0)
    with Ledger.open(tmp_path / "held.sqlite") as ledger:
        data = ledger.dataset("a", records=[b"1"])
        assert ledger.held(data) == []
        ledger.reserve("r", data, one * 3)
        ledger.release("r", data, "r/0", one, b"x")
        assert ledger.held(data) == [one * 3]
        ledger.close("r")
        assert ledger.held(data) == [one]
