"""`prismfl server`: a folder without its processes; the mistakes are in tests/site/test_commands.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismfl.cli import terminal
from prismfl.errors import UserError
from prismfl.server.config import load_server
from prismfl.server.running import status
from prismfl.site.keys import make_site_keys
from tests.cli.command import invoke, refused, shown
from tests.site.folders import make_run


@pytest.fixture
def server(tmp_path: Path) -> Path:
    assert invoke("server", "init", "server", "--port", "9099", cwd=tmp_path).returncode == 0
    return tmp_path / "server"


def test_the_status_of_a_run_that_waits(server: Path) -> None:
    make_run(server / "runs" / "one", load_server(server).rules())
    found = shown("server", "status", server, cwd=server)
    assert found == status(server)
    assert (found["running"], found["sites"]) == (False, [])
    assert found["runs"] == [{"run": "one", "status": "running", "rounds done": 0, "dropped": ""}]
    assert "Server stopped; sites: none" in invoke("server", "status", server, cwd=server).stdout


def test_a_finished_run_is_not_taken_up_again(server: Path) -> None:
    make_run(server / "runs" / "one", load_server(server).rules()).set_status("finished")
    refused("server", "start", server, "--resume", cwd=server, words="no run that did not finish")


def test_code_by_name_is_not_served(server: Path) -> None:
    (server / "run.toml").write_text('method = "tests.runs.foreign_method:METHOD"\ndata = "digits"\n')
    args = ("server", "start", server, server / "run.toml", "--insecure", "--site", "north")
    refused(*args, cwd=server, words="only run, plan and resume import code")
    assert not (server / "runs").exists()


def test_a_site_is_revoked_and_the_certificate_renewed(server: Path, tmp_path: Path) -> None:
    for name in ("north", "south"):
        make_site_keys(tmp_path / name)
        assert invoke("server", "enroll", server, name, tmp_path / name / "node.pub", cwd=server).returncode == 0
    assert invoke("server", "revoke", server, "north", "--reason", "left", cwd=server).returncode == 0
    assert status(server)["sites"] == ["south"]
    make_site_keys(tmp_path / "again")
    key = tmp_path / "again" / "node.pub"
    assert "revoked" in invoke("server", "enroll", server, "south", key, "--replace", cwd=server).stderr
    done = invoke("server", "renew", server, "--name", "fed.example.org", cwd=server)
    assert "renewed for fed.example.org, good until" in done.stderr
    assert shown("server", "status", server, cwd=server)["contact"] == {"south": None}
    assert invoke("server", "status", server, cwd=server).returncode == 0


def test_lines_for_people_or_for_a_collector(capsys: pytest.CaptureFixture[str]) -> None:
    speak = terminal.speaker("json")
    speak("warning: clock")
    speak("2026-11-18 10:00:00,123 ERROR run x: refused")
    speak('round 1: "quoted"\nand a second line')
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("warning", "clock"),
        ("error", "run x: refused"),
        ("info", 'round 1: "quoted"\nand a second line'),
    ]
    assert terminal.speaker("text") is terminal.say
    with pytest.raises(UserError, match="text or json"):
        terminal.speaker("xml")
    ages = [terminal.ago(s) for s in (None, 5, 600, 7200 * 5, 86400 * 30)]
    assert ages == ["never there", "5 s ago", "10 min ago", "10 h ago", "30 days ago"]
