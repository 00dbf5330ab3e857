"""`prismfl server`: a folder without its processes; the mistakes are in tests/site/test_commands.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.server.config import load_server
from prismfl.server.running import status
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
