"""One holder, one release: whom the ledger knows the data by."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.core.once import Holder, Made, refuse_seeded, release_once
from prismfl.core.records import Records, unit_prints
from prismfl.errors import BudgetError, UserError
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.sources import NO_PROTECTION
from tests.laws.world import make_job, some_records


def made(folder: Path, *, cap: float | None = None, deployed: bool = True, name: str | None = "mine") -> Made:
    job = make_job("prism", sites=("me",), settings={"rounds": 1})
    records = some_records(job.task.records, seed=0)
    prints = [x.numpy().tobytes() for x in records.x]
    return release_once(job, Holder(records, prints, name), ledger=folder, cap=cap, deployed=deployed)


def test_each_release_adds_to_what_the_data_have_paid(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path, name=None)  # without a name they are known by their prints
    assert first.guarantee() == "differential privacy"
    assert first.ledger == second.ledger
    assert first.release.run != second.release.run
    assert (first.total["releases"], second.total["releases"]) == (1, 2)
    assert second.total["epsilon"] > first.total["epsilon"] > 0
    with Ledger.open(second.ledger) as ledger:
        [status] = ledger.status()
        assert status.open_runs == ()
        assert status.unconfirmed == 0


def test_over_the_cap_nothing_is_made_or_charged(tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        made(tmp_path, cap=0.01)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.charges() == []


def test_a_seeded_release_says_so(tmp_path: Path) -> None:
    assert made(tmp_path, deployed=False).guarantee() == NO_PROTECTION


def test_people_are_known_by_their_codes_each_once() -> None:
    x, y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    assert list(unit_prints(Records(x, y))) == []
    found = list(unit_prints(Records(x, y, torch.tensor([7, -1, 7, 2**40]))))
    assert sorted(found) == sorted(code.to_bytes(8, "little", signed=True) for code in (-1, 7, 2**40))


def test_seeded_noise_is_refused_where_data_have_a_cap() -> None:
    refuse_seeded(None, deployed=False)
    refuse_seeded(Cap(1.0, 1e-5), deployed=True)
    with pytest.raises(UserError, match="protects nobody"):
        refuse_seeded(Cap(1.0, 1e-5), deployed=False)
