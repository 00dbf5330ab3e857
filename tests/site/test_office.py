"""A site decides for itself: what it refuses, what it logs, what waits for a person, and what never leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prismfl.core.door import PrivateRecords
from prismfl.core.payloads import JsonDict, encode
from prismfl.core.rounds import initial_state
from prismfl.errors import UserError
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.keeping import set_cap
from prismfl.runs.description import declared, describe, digest_of, job_of
from prismfl.runs.directory import digest
from prismfl.site import data as site_data
from prismfl.site.approvals import Approvals
from prismfl.site.config import cap_by_hand, load_site
from prismfl.site.egress import EgressLog
from prismfl.site.office import Office
from prismfl.transport.post import Answer, Request
from tests.site.folders import NAMES, make_site, run_config, site_config


def description(**changes: object) -> JsonDict:
    config = run_config(**changes)
    return describe(config, declared(config)[0], NAMES)


def ask(office: Office, told: JsonDict, round: int = 0, *, seconds: float = 0.0) -> Answer:
    state = initial_state(job_of(told))
    down = encode(state.items, {"round": round})
    return office.answer(Request("round", told, round, seconds, down))


def test_a_release_is_logged_with_a_copy_and_a_resend_is_free(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", noise="operating-system")
    told = description()
    assert office.answer(Request("hello", told)) == Answer("ready", site="north")
    first, again = ask(office, told), ask(office, told)
    assert first.kind == "release"
    assert again.body == first.body
    rows = EgressLog(office.folder).rows()
    assert [row["what"] for row in rows] == ["word", "release", "release"]
    assert [row["resend"] for row in rows[1:]] == [False, True]
    row = rows[1]
    assert (row["bytes"], row["digest"], row["noise"]) == (len(first.body), digest(first.body), "operating system")
    assert row["items"]["model"]["kind"] == "weights"
    assert (office.folder / "egress" / row["copy"]).read_bytes() == first.body
    ledger = office._host(job_of(told), told).ledger
    assert len(ledger.charges(run=told["run"])) == 1


def test_a_confirmed_release_is_sent_again_from_the_copy(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", noise="operating-system")
    told = description(settings={"rounds": 3})
    first = ask(office, told, 0)
    ask(office, told, 1)
    ask(office, told, 2)  # by now both of the server's checkpoints are past round 0
    ledger = office._host(job_of(told), told).ledger
    assert ledger.outbox(f"{told['run']}/north/0") is None
    assert ask(office, told, 0).body == first.body
    next((office.folder / "egress").glob("*0000*")).unlink()
    assert ask(office, told, 0).code == "refused"


@pytest.mark.parametrize(
    ("site", "run", "code"),
    [
        ({"methods": ["fedavg"]}, {}, "method-not-allowed"),
        ({"releases": ["synthetic-set"]}, {}, "release-not-allowed"),
        ({"configs": ["0" * 64]}, {}, "config-not-allowed"),
        ({"cap": 0.05}, {}, "refused"),
        ({"unit": "patient_id"}, {}, "unit-mismatch"),
        ({"data": "breast-cancer"}, {}, "refused"),
        ({"cap": 2.0}, {"settings": {"rounds": 1000}}, "refused"),
    ],
)
def test_the_site_refuses_whatever_the_server_asks(
    tmp_path: Path, site: dict[str, object], run: dict[str, object], code: str
) -> None:
    office = make_site(tmp_path, "north", **site)
    told = description(**run)
    for answer in (office.answer(Request("hello", told)), ask(office, told)):
        assert (answer.kind, answer.code, answer.body) == ("code", code, b"")
    assert not (office.folder / "egress").exists()


def test_versions_and_configs_are_refused_before_any_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = make_site(tmp_path, "north")
    told = description()

    def never(*_: object) -> object:
        raise AssertionError("data was read")

    monkeypatch.setattr(site_data, "load", never)
    newer = {**told, "protocol": 99}
    newer["digest"] = digest_of(newer)
    changed = {**told, "config": {**told["config"], "seed": 1}}
    stranger = {**told, "sites": ["south", "west"]}
    stranger["digest"] = digest_of(stranger)
    codes = [office.answer(Request("hello", d)).code for d in (newer, changed, stranger)]
    assert codes == ["version-mismatch", "config-mismatch", "unknown-site"]


def test_a_run_cannot_change_its_config_on_the_way(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north")
    told = description()
    assert ask(office, told).kind == "release"
    other = {**description(settings={"rounds": 3}), "run": told["run"]}
    assert ask(office, other).code == "refused"


def test_of_an_exception_only_a_code_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = make_site(tmp_path, "north")

    def broken(self: PrivateRecords, *args: object, **kwargs: object) -> None:
        raise RuntimeError("record 17: Jane Doe")

    monkeypatch.setattr(PrivateRecords, "noisy_gradient", broken)
    answer = ask(office, description())
    assert answer == Answer("code", code="refused", site="north")
    assert "Jane" not in (office.folder / "site.log").read_text()
    assert "Jane" not in (office.folder / "egress.jsonl").read_text()


def test_a_release_waits_for_a_person(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True)
    told = description()
    assert ask(office, told).code == "refused"
    approvals = Approvals(office.folder)
    (held,) = approvals.all()
    assert held.decision == "waiting"
    assert any(name.endswith("preview.txt") for name in held.files)
    ledger = office._host(job_of(told), told).ledger
    (charge,) = ledger.charges(run=told["run"])
    approvals.decide(held.id, "approved", by="Ann", reason="looked")
    answer = ask(office, told)
    assert answer.kind == "release"
    assert digest(answer.body) == charge.digest
    with pytest.raises(UserError, match="was approved before"):
        approvals.decide(held.id, "denied", by="Ann", reason="looked")
    with pytest.raises(UserError, match="waiting: none"):
        approvals.decide("nothing", "denied", by="Ann", reason="looked")


def test_a_denied_release_never_leaves_and_stays_charged(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north", approval=True)
    told = description()
    ask(office, told)
    approvals = Approvals(office.folder)
    approvals.decide(approvals.all()[0].id, "denied", by="Ann", reason="looked")
    assert [ask(office, told).code for _ in range(2)] == ["refused", "refused"]
    assert len(office._host(job_of(told), told).ledger.charges(run=told["run"])) == 1
    assert not (office.folder / "egress").exists()


def test_mistakes_in_site_toml_are_one_clear_line(tmp_path: Path) -> None:
    office = make_site(tmp_path, "north")
    path = office.folder / "site.toml"
    good = path.read_text()
    for change, words in (
        (('data = "digits"', 'data = "/nowhere"'), "neither a data set's name nor a path"),
        (("part = 0", "part = 7"), "part < parts"),
        (('"dp-fedavg"', '"dp-fedav"'), "Unknown method"),
        (("cap = 50.0", "cap = -1.0"), "cap > 0"),
        (('name = "north"', 'name = "../north"'), "site name"),
        (("approval = false", "aproval = false"), "did you mean 'approval'"),
    ):
        assert change[0] in good
        path.write_text(good.replace(*change))
        with pytest.raises(UserError, match=words):
            load_site(office.folder)
    path.write_text(good)
    assert load_site(office.folder) == site_config("north")
    assert json.dumps(site_config("north").model_dump())
    assert replace(office, config=site_config("south")).config.name == "south"


def test_a_cap_set_by_hand_is_not_taken_back_by_site_toml(tmp_path: Path) -> None:
    """The bug: every request declares site.toml's cap anew, and with it undoes what the ledger's keeper decided."""
    office, told = make_site(tmp_path, "north"), description()
    assert ask(office, told).kind == "release"
    assert cap_by_hand(office.folder, office.config) is None
    set_cap(office.folder / "ledger.sqlite", "digits/0", 0.1)
    assert ask(office, {**told, "run": "another"}) == Answer("code", code="refused", site="north")
    assert ask(office, told, 1).kind == "release", "a run under way keeps what it reserved"
    with Ledger.open(office.folder / "ledger.sqlite") as ledger:
        assert ledger.cap("ds1") == Cap(0.1, 1e-5)
    said = cap_by_hand(office.folder, office.config)
    assert said is not None
    assert "epsilon 0.1 at delta 1e-05, not that of site.toml (50.0 at 1e-05)" in said
    assert (office.folder / "site.log").read_text().count(said) == 1, "once for a run"
    assert cap_by_hand(office.folder, site_config("north", cap=0.05)) is None
    assert "site.toml (none at 1e-05)" in (cap_by_hand(office.folder, site_config("north", cap="none")) or "")
