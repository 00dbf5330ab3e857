"""What waits for a person, what people decide, and what the log and the ledger keep of it."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
import torch

from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import Records
from prismfl.core.release import Release
from prismfl.errors import UserError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.book import Ledger
from prismfl.report.sites import preview
from prismfl.site.approvals import Approvals, nearest_words
from prismfl.site.egress import EgressLog
from tests.site.folders import make_site
from tests.site.test_office import ask, description


def test_a_decision_has_a_name_and_a_reason_in_log_and_ledger(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True)
    told = description()
    assert ask(office, told).code == "refused"
    approvals = Approvals(office.folder)
    (held,) = approvals.all()
    for by, reason in (("", "x"), ("Ann", " "), ("A\x1b[2Jnn", "x"), ("Ann", "x" * 501)):
        with pytest.raises(UserError, match="printable characters"):
            approvals.decide(held.id, "approved", by=by, reason=reason)
    approvals.decide(held.id, "approved", by="Ann  Example", reason="looks like noise")
    assert ask(office, told).kind == "release"
    log = EgressLog(office.folder)
    decisions = [row for row in log.rows() if row["what"] == "decision"]
    assert len(decisions) == 1
    row = decisions[0]
    assert (row["by"], row["reason"], row["decision"]) == ("Ann Example", "looks like noise", "approved")
    assert log.verify() == len(log.rows())
    with Ledger.open(office.folder / "ledger.sqlite") as ledger:
        (entry,) = [entry for entry in ledger.history() if entry.kind == "approve"]
        assert entry.body["by"] == ["Ann Example"]
        assert entry.body["egress"] in {row["chain"] for row in log.rows()}
    text = preview(office.folder, held.id)
    assert "left    " in text
    assert "approved by Ann Example" in text
    assert "for the whole run" in text


def test_two_people_are_two_people(tmp_path: Path) -> None:
    """The bug: one person who types another spelling."""
    office = make_site(tmp_path, "north", approval=True, approvers=2)
    told = description()
    ask(office, told)
    approvals = Approvals(office.folder)
    (held,) = approvals.all()
    assert approvals.decide(held.id, "approved", by="Ann", reason="fine").decision == "waiting"
    assert ask(office, told).code == "refused", "one of two is not enough"
    for again in ("Ann", " ann ", "ANN", "\uff21nn"):
        with pytest.raises(UserError, match="another person"):
            approvals.decide(held.id, "approved", by=again, reason="fine")
    assert approvals.decide(held.id, "approved", by="Bob", reason="fine").decision == "approved"
    assert ask(office, told).kind == "release"


def test_one_person_can_deny_what_another_approved(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True, approvers=2)
    told = description()
    ask(office, told)
    approvals = Approvals(office.folder)
    (held,) = approvals.all()
    approvals.decide(held.id, "approved", by="Ann", reason="fine")
    assert approvals.decide(held.id, "denied", by="Bob", reason="a face").decision == "denied"
    with pytest.raises(UserError, match="was denied before; that stands"):
        approvals.decide(held.id, "approved", by="Cy", reason="fine")
    assert ask(office, told).code == "refused"
    with Ledger.open(office.folder / "ledger.sqlite") as ledger:
        assert ledger.charges()[0].status == "denied"


def test_the_hook_gets_the_id_and_no_word_of_the_server(tmp_path: Path) -> None:
    """The bug: a shell, or the run's name in an argument. The server has chosen the run's name."""
    note, hook = tmp_path / "told.json", tmp_path / "hook.py"
    hook.write_text(f"import json, sys\njson.dump(sys.argv[1:], open({str(note)!r}, 'a'))\n")
    office = make_site(tmp_path, "north", approval=True, notify=[sys.executable, str(hook), "$(touch x)", "; id"])
    told = {**description(), "run": "a-run.with:all_its-letters"}
    ask(office, told)
    ask(office, told)  # asked again: not told again
    (held,) = Approvals(office.folder).all()
    assert json.loads(note.read_text()) == ["$(touch x)", "; id", held.id]
    assert len(held.id) == 16
    assert set(held.id) <= set("0123456789abcdef")


def test_a_hook_that_fails_stops_nothing(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True, notify=["/nowhere/at/all"])
    ask(office, description())
    assert len(Approvals(office.folder).all()) == 1
    assert "`notify` of site.toml failed: FileNotFoundError" in (office.folder / "site.log").read_text()


def synthetic(x: torch.Tensor) -> Release:
    made = SyntheticSet.of(x, torch.zeros(len(x), dtype=torch.long))
    return Release("run", "north", 0, {"images": made}, Cost.zero(), "")


def test_nearness_to_a_record_is_measured_on_the_site(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, 1, 8, 8, generator=generator)
    records = Records((x * 255).to(torch.uint8), torch.zeros(50, dtype=torch.long))
    (near,) = nearest_words(synthetic(records.floats().x[:5].clone()), records)
    assert "nearest record of this site at 0 " in near
    (far,) = nearest_words(synthetic(torch.rand(5, 1, 8, 8, generator=generator)), records)
    assert "at 0 " not in far.partition(";")[0]
    assert nearest_words(synthetic(torch.rand(5, 1, 4, 4)), records) == []
    assert nearest_words(synthetic(x[:5]), None) == []
    raw = b"x"
    told = {**description(), "digest": "d"}
    approvals = Approvals(tmp_path)
    name = approvals.hold(synthetic(x[:5]), raw, told, plan="p", records=records)
    assert approvals.pictures(name) == ["images.png"]
    assert approvals.facts(name)["nearest"] == nearest_words(synthetic(x[:5]), records)
    picture = tmp_path / "outbox" / name / "images.png"
    assert stat.S_IMODE(picture.stat().st_mode) & 0o007 in (0, 4)  # as closed as its folder


def test_a_decision_of_an_earlier_version_still_stands(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True)
    ask(office, description())
    (held,) = Approvals(office.folder).all()
    (office.folder / "outbox" / held.id / "decision").write_text("denied")
    assert Approvals(office.folder).find(held.id).decision == "denied"
