"""`prismfl site`: what its operator is shown of a folder; more is in tests/site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import invoke, refused, shown
from tests.hostile.test_server import ask, description, down
from tests.site.folders import make_site


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that has answered one round."""
    office = make_site(tmp_path_factory.mktemp("site"), "north")
    told = description()
    for kind, state in (("hello", b""), ("round", down(told))):
        assert ask(office, told, kind=kind, state=state).kind in ("ready", "release")
    return office.folder


def test_check_shows_what_is_declared(asked: Path) -> None:
    found = shown("site", "check", asked, cwd=asked)
    assert (found["site"], found["data"], found["shape"], found["cap"]) == ("north", "digits", [1, 8, 8], 50.0)
    assert found["methods"] == ["dp-fedavg"]
    table = invoke("site", "check", asked, cwd=asked, env={"COLUMNS": "200"}).stdout
    assert "max_rounds" in table
    assert "0, 1, 2, 3" in table


def test_status_counts_what_left(asked: Path) -> None:
    found = shown("site", "status", asked, cwd=asked)
    assert (found["running"], found["releases"], found["words"]) == (False, 1, ["ready (round 1)"])
    assert found["ledger"][0]["releases"] == 1
    assert "ledger, epsilon spent" in invoke("site", "status", asked, cwd=asked).stdout


def test_egress_and_runs_tell_the_same_run(asked: Path) -> None:
    (run,) = shown("site", "runs", asked, cwd=asked)
    assert run["state"] == "holds budget"
    assert "dp-fedavg" in run["what"]
    rows = shown("site", "egress", asked, cwd=asked)
    assert {row["run"] for row in rows} == {run["run"]}
    text = invoke("site", "egress", asked, cwd=asked, env={"COLUMNS": "200"}).stdout
    assert "model (weights)" in text


def test_an_empty_outbox(asked: Path) -> None:
    assert shown("site", "outbox", asked, cwd=asked) == []
    refused("site", "deny", asked, "x", "--by", "Ann", "--reason", "no", cwd=asked, words="waiting: none")


def test_code_by_name_cannot_be_allowed(tmp_path: Path) -> None:
    args = ("site", "init", tmp_path / "e", "--name", "e", "--data", "digits", "--method", "os:system")
    refused(*args, cwd=tmp_path, words="Unknown method 'os:system'")
    assert not (tmp_path / "e").exists()
