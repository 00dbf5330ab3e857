"""The commands of a federation without its processes: what they write, and the one clear line for each mistake."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from prismfl.cli.main import app
from prismfl.errors import UserError
from prismfl.server.config import enrolled, load_server
from prismfl.site import data as site_data
from prismfl.site import joining
from prismfl.site.approvals import Approvals
from prismfl.site.config import load_site
from prismfl.transport.flower.children import free_port


def prismfl(*arguments: str | Path) -> None:
    app([str(argument) for argument in arguments], standalone_mode=False)


TRIAL = ("--name", "e", "--data", "digits", "--method", "fedavg")


def make(root: Path, *names: str) -> None:
    prismfl("server", "init", root / "server", "--port", "9099", "--name", "fed.example.org")
    for name in names:
        prismfl("site", "init", root / name, "--name", name, "--data", "digits", "--method", "dp-fedavg")
        prismfl("server", "enroll", root / "server", name, root / name / "keys" / "node.pub")


def test_init_and_enroll_write_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, "north", "south")
    assert load_server(tmp_path / "server").port == 9099
    assert set(enrolled(tmp_path / "server")) == {"north", "south"}
    site = load_site(tmp_path / "north")
    assert (site.cap, site.releases, site.noise, site.approval) == (1.0, ["weights"], "operating-system", False)
    for secret in (
        tmp_path / "north/keys/node.key",
        tmp_path / "server/keys/ca.key",
        tmp_path / "server/keys/server.key",
    ):
        assert secret.stat().st_mode & 0o077 == 0
    capsys.readouterr()
    prismfl("server", "status", tmp_path / "server", "--format", "json")
    assert json.loads(capsys.readouterr().out) == {
        "running": False,
        "pid": None,
        "sites": ["north", "south"],
        "contact": {"north": None, "south": None},
        "certificates": [],
        "runs": [],
    }
    prismfl("site", "status", tmp_path / "north", "--format", "json")
    assert json.loads(capsys.readouterr().out)["releases"] == 0


def test_mistakes_are_one_clear_line(tmp_path: Path) -> None:
    make(tmp_path, "north", "south")
    server, north = tmp_path / "server", tmp_path / "north"
    run = tmp_path / "run.toml"
    run.write_text('method = "dp-fedavg"\ndata = "digits"\nmodel = "logreg"\n[settings]\nsigma = 1.0\n')
    key = north / "keys" / "node.pub"
    for arguments, words in (
        (("server", "init", server), "holds a server already"),
        (("server", "enroll", server, "north", key), "two sites cannot have the same name"),
        (("server", "enroll", server, "east", key), "enrolled already, as site 'north'"),
        (("server", "enroll", server, "east", north / "keys" / "sign.pub"), "not a node key"),
        (("server", "enroll", server, "East!", key), "site name"),
        (("server", "start", server), "or --resume"),
        (("server", "start", server, "--resume"), "no run that did not finish"),
        (("server", "start", server, run, "--insecure"), "No site is enrolled"),
        (("server", "start", server, run, "--set", "method=dp-central"), "cannot run over sites"),
        (("server", "start", tmp_path / "nowhere", run), "No server.toml"),
        (("server", "stop", server), "is not running"),
        (("site", "join", north, "127.0.0.1:1"), "copy the server's ca.pem"),
        (("site", "join", north, "somewhere"), "HOST:PORT"),
        (("site", "join", tmp_path / "nowhere", "127.0.0.1:1"), "No site.toml"),
        (("site", "approve", north, "x", "--by", "Ann", "--reason", "x"), "waiting: none"),
        (("site", "init", north, "--name", "n", "--data", "digits", "--method", "prism"), "holds a site already"),
        (("site", "init", tmp_path / "e", "--name", "e", "--data", "/nowhere", "--method", "fedavg"), "nor a path"),
        (("site", "init", tmp_path / "e", "--name", "e", "--data", "digits", "--method", "fedavgg"), "Unknown method"),
        (("site", "init", tmp_path / "e", *TRIAL, "--split", "shards"), "say which part this is: --part 0/3"),
        (("site", "init", tmp_path / "e", *TRIAL, "--part", "0/3", "--split", "shard"), "did you mean 'shards'"),
        (("site", "init", tmp_path / "e", *TRIAL, "--part", "0/3", "--split", "natural(x)"), "a split of a named"),
        (("server", "start", server, run, "--set", f"start={tmp_path}"), "No run|no run"),
        (("bundle", "export", north, run, tmp_path), "No peer is known"),
    ):
        with pytest.raises(UserError, match=words):
            prismfl(*arguments)
    (server / "server.toml").write_text((server / "server.toml").read_text().replace("quorum = 2", "quorum = 3"))
    with pytest.raises(UserError, match="quorum of 3 is more than the 2 enrolled"):
        prismfl("server", "start", server, run)
    assert not (server / "runs").exists()
    assert Approvals(north).all() == []


def test_an_unreachable_server_is_tried_again_with_a_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "RETRY_SECONDS", 0.01)
    lines: list[str] = []
    with pytest.raises(UserError, match="Cannot reach the server"):
        joining.preflight(f"127.0.0.1:{free_port()}", None, lines.append, attempts=3)
    assert len(lines) == 2
    assert "Connection refused; trying again" in lines[0]


def test_a_site_that_died_is_not_taken_for_a_stranger() -> None:
    """Flower refuses its key for a minute; a key that nobody enrolled is refused for ever."""
    refusals = joining.Refusals()
    assert not any(refusals.last_too_long(t, t + 5.0) for t in range(0, 80, 10))
    assert refusals.last_too_long(90.0, 95.0)
    assert not refusals.last_too_long(100.0, 200.0)
    assert not refusals.last_too_long(201.0, 206.0)


def test_clock_skew_and_plaintext_are_told(tmp_path: Path) -> None:
    class Late(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return "Sun, 01 Jan 2023 00:00:00 GMT"

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Late)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"127.0.0.1:{server.server_port}"
    lines: list[str] = []
    joining.preflight(address, None, lines.append)
    assert "clock is +" in lines[0]
    make(tmp_path, "north")
    with pytest.raises(UserError, match="does not speak TLS"):
        joining.preflight(address, tmp_path / "server" / "keys" / "ca.pem", lines.append)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_trial_is_dealt_as_the_operator_says(tmp_path: Path) -> None:
    for i in range(2):
        prismfl("site", "init", tmp_path / f"{i}", *TRIAL, "--part", f"{i}/2", "--split", "pathological(5)")
    sites = [load_site(tmp_path / f"{i}") for i in range(2)]
    assert [site.split for site in sites] == ["pathological(5)"] * 2
    held = [set(site_data.load(tmp_path / f"{i}", site).records.y.tolist()) for i, site in enumerate(sites)]
    assert [len(labels) for labels in held] == [5, 5]
