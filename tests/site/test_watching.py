"""What a monitor reads of a site: what left and its cost; the same for other records."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.site.certificates import make_authority
from prismfl.site.office import Office
from prismfl.site.watching import is_ready, is_running, last_answer, metrics, watched
from prismfl.transport.watch import text_of
from tests.hostile.test_server import ask, description
from tests.site.folders import make_site


def answered(root: Path, **changes: object) -> Office:
    """A site that was greeted, has answered one round and refused a run that it does not allow."""
    office = make_site(root, "north", **changes)
    make_authority(root / "ca", ["127.0.0.1"])
    (office.folder / "keys").mkdir()
    shutil.copy(root / "ca" / "ca.pem", office.folder / "keys" / "ca.pem")
    told = description()
    for kind in ("hello", "round"):
        ask(office, told, kind=kind)
    ask(office, {**told, "run": "x y"}, state=b"")
    return office


def page(office: Office) -> dict[str, str]:
    lines = text_of(metrics(office.folder)).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_what_left_and_what_it_cost_is_told(tmp_path: Path) -> None:
    office = answered(tmp_path)
    found = page(office)
    assert found["prismfl_site_releases_total"] == "1"
    assert found['prismfl_site_words_total{word="ready"}'] == "1"
    assert found['prismfl_site_words_total{word="config-mismatch"}'] == "1"
    assert int(found["prismfl_site_sent_bytes_total"]) > 1000
    labels = '{dataset="north",unit="record"}'
    with Ledger.open(office.folder / "ledger.sqlite") as ledger:
        spent = account.epsilon(ledger.spent("ds1"), 1e-5)
    assert float(found[f"prismfl_site_epsilon_spent{labels}"]) == pytest.approx(spent)
    assert float(found[f"prismfl_site_epsilon_left{labels}"]) == pytest.approx(50.0 - spent)
    assert 1800 < int(found["prismfl_site_certificate_days"]) < 1830
    assert (found["prismfl_site_up"], found["prismfl_site_waiting"]) == ("0", "0")


def test_other_records_give_the_same_page(tmp_path: Path) -> None:
    """The bug: the ledger's own rows, with the number of records in them; or a balance that joins where records do."""
    pages = []
    for name, part in (("a", 0), ("b", 1)):
        office = answered(tmp_path / name, part=part)
        if part:
            with Ledger.open(office.folder / "ledger.sqlite") as ledger:  # another command's run on the same people
                ledger.reserve("other", "ds1", Cost.gaussian(3.0))
                ledger.release("other", "ds1", "other", Cost.gaussian(3.0), b"x")
        pages.append({k: v for k, v in page(office).items() if k != "prismfl_site_last_answer_seconds"})
    assert pages[0] == pages[1]


def test_ready_follows_ledger_and_trust_never_the_data(tmp_path: Path) -> None:
    office = answered(tmp_path)
    assert not is_running(office.folder)
    (office.folder / "site.pid").write_text(str(os.getpid()))
    assert is_running(office.folder)
    assert is_ready(office.folder)
    assert watched(office.folder).ready()
    (office.folder / "ledger.sqlite.anchor").rename(tmp_path / "anchor")
    assert not is_ready(office.folder)
    assert page(office)["prismfl_site_ledger_whole"] == "0"
    (tmp_path / "anchor").rename(office.folder / "ledger.sqlite.anchor")
    (office.folder / "keys" / "ca.pem").write_text("")
    assert not is_ready(office.folder)


def test_an_answer_is_told_when_it_leaves_not_when_it_is_ready() -> None:
    rows = [{"time": "2026-11-18T10:00:07+00:00"}]
    assert last_answer(rows, 0.0) % 60 == 7
    assert last_answer(rows, 60.0) % 60 == 0
    assert last_answer([], 60.0) == 0.0
