"""The release desk: driven by whoever has the token, and by nobody else on this machine or in its browser."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.report import desk
from prismfl.report.desk import desk_server, held_facts
from prismfl.site.approvals import Approvals
from prismfl.site.egress import EgressLog
from prismfl.transport.local import TOKEN
from tests.hostile.test_server import prism_local
from tests.report.browser import open_browser
from tests.site.folders import make_site
from tests.site.test_office import ask

SECRET = "a-token-for-this-test"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site where a synthetic set waits, of a run whose name the server has chosen with care."""
    office = make_site(
        tmp_path_factory.mktemp("desk"), "north", approval=True, methods=["prism-local"], releases=["synthetic-set"]
    )
    told = {**prism_local(), "run": "x:y_z.w"}
    assert ask(office, told).code == "refused"
    assert len(Approvals(office.folder).all()) == 1, (office.folder / "site.log").read_text()
    note = office.folder / "outbox" / Approvals(office.folder).all()[0].id / "held.json"
    held = json.loads(note.read_text())
    held["asked"].append("<img src=x onerror=alert(1)><script>alert(1)</script>")  # a word of the server's
    note.write_text(json.dumps(held))
    return office.folder


@pytest.fixture
def server(waiting: Path) -> Iterator[ThreadingHTTPServer]:
    made = desk_server(waiting, SECRET)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def call(
    server: ThreadingHTTPServer, method: str, path: str, *, body: Any = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {"Host": f"127.0.0.1:{server.server_port}", **{key.replace("_", "-"): v for key, v in headers.items()}}
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


KEY = {TOKEN.replace("-", "_"): SECRET}
JSON = {"Content_Type": "application/json"}
GO = {"decision": "approved", "by": "Ann", "reason": "x"}


def one(folder: Path) -> str:
    return Approvals(folder).all()[0].id


def test_what_waits_is_told_in_full(server: ThreadingHTTPServer, waiting: Path) -> None:
    status, raw, _ = call(server, "GET", "/api/held", **KEY)
    (held,) = json.loads(raw)
    assert status == 200
    assert held["decision"] == "waiting"
    assert "epsilon" in held["plan"]
    assert "of the cap of epsilon 50" in held["left"]
    assert any("synthetic" in line for line in held["asked"])
    assert held["nearest"][0].startswith("synthetic: nearest record")
    assert held["pictures"] == ["synthetic.png"]
    status, raw, headers = call(server, "GET", f"/api/held/{held['id']}/synthetic.png", **KEY)
    assert (status, headers["content-type"], raw[:4]) == (200, "image/png", b"\x89PNG")
    assert held_facts(waiting)[0]["id"] == held["id"]


def test_nobody_without_the_token_reads_or_decides(server: ThreadingHTTPServer, waiting: Path) -> None:
    """Another user of the machine: reaches the port, has no token. It helps neither in the address nor as a cookie."""
    place = f"/api/held/{one(waiting)}"
    for headers in ({}, {"X_Prismfl_Token": "x"}, {"X_Prismfl_Token": ""}, {"Cookie": f"token={SECRET}"}):
        for method, path in (("GET", "/api/held"), ("GET", f"{place}/synthetic.png"), ("POST", place)):
            status, raw, _ = call(server, method, path, body=GO, **JSON, **headers)
            assert (status, raw) == (401, b"")
        assert call(server, "GET", f"/api/held?token={SECRET}", **headers)[0] == 401
    status, page, _ = call(server, "GET", "/")
    assert status == 200
    assert one(waiting).encode() not in page, "the page itself holds nothing"
    assert Approvals(waiting).all()[0].decision == "waiting"


def test_no_page_in_the_operators_browser_can_drive_it(server: ThreadingHTTPServer, waiting: Path) -> None:
    """Rebinding (another Host), a form of another origin (no header of ours, no JSON), a fetch (no origin allowed)."""
    place, port = f"/api/held/{one(waiting)}", server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
        for method, path in (("GET", "/"), ("GET", "/api/held"), ("POST", place)):
            assert call(server, method, path, body=GO, Host=host, **KEY, **JSON)[:2] == (421, b"")
    for origin in ("http://evil.example", f"http://127.0.0.1:{port + 1}", "null"):
        assert call(server, "POST", place, body=GO, Origin=origin, **KEY, **JSON)[0] == 401
    assert call(server, "POST", place, body=GO, Content_Type="text/plain", **KEY)[0] == 400
    assert call(server, "OPTIONS", place, Origin="http://evil.example")[0] == 501
    _, _, headers = call(server, "GET", "/api/held", **KEY)
    assert headers["access-control-allow-origin"] is None
    assert headers["set-cookie"] is None
    policy = call(server, "GET", "/")[2]["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert Approvals(waiting).all()[0].decision == "waiting"


def test_requests_that_make_no_sense_decide_nothing(server: ThreadingHTTPServer, waiting: Path) -> None:
    place = f"/api/held/{one(waiting)}"
    changes: list[dict[str, Any]] = [{"by": ""}, {"by": 3}, {"decision": "waiting"}, {"reason": "\x00"}]
    wrong: list[Any] = [{}, [], "x", *({**GO, **change} for change in changes)]
    for body in wrong:
        assert call(server, "POST", place, body=body, **KEY, **JSON)[0] == 400
    assert call(server, "POST", place, body={**GO, "reason": "x" * 20_000}, **KEY, **JSON)[0] == 400
    for path in ("/api/held/nothing", "/api/held/..", "/api", f"{place}/x"):
        assert call(server, "POST", path, body=GO, **KEY, **JSON)[0] in (400, 404)
    for path in (
        f"{place}/held.json",
        f"{place}/..%2fheld.json",
        "/api/held/../site.toml",
        "/api/held/x/synthetic.png",
    ):
        assert call(server, "GET", path, **KEY)[0] in (400, 404)
    with pytest.raises(UserError, match="choose another with --port"):
        desk_server(waiting, SECRET, port=server.server_port)
    assert Approvals(waiting).all()[0].decision == "waiting"


def test_a_decision_is_logged_with_name_and_reason(server: ThreadingHTTPServer, waiting: Path) -> None:
    status, raw, _ = call(server, "POST", f"/api/held/{one(waiting)}", body=GO, **KEY, **JSON)
    assert (status, json.loads(raw)) == (200, {"decision": "approved"})
    row = EgressLog(waiting).rows()[-1]
    assert (row["what"], row["by"], row["decision"]) == ("decision", "Ann", "approved")
    again = call(server, "POST", f"/api/held/{one(waiting)}", body={**GO, "decision": "denied"}, **KEY, **JSON)
    assert again[0] == 400
    assert b"that stands" in again[1]
    (waiting / "outbox" / one(waiting) / "decisions.json").unlink()  # for the other tests it waits again


def test_the_token_is_said_once_and_is_in_no_address_that_is_sent(
    waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: ThreadingHTTPServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", stop)
    lines: list[str] = []
    desk.serve(waiting, port=0, say=lines.append)
    address, _, token = lines[0].partition("#")
    assert address.endswith("/")
    assert len(token) > 40


@pytest.mark.processes
def test_a_person_decides_in_a_real_browser(server: ThreadingHTTPServer, waiting: Path, tmp_path: Path) -> None:
    with open_browser(tmp_path) as browser:
        browser.go(f"http://127.0.0.1:{server.server_port}/")
        browser.until("document.getElementById('state').textContent.includes('carries the token')")
        browser.complaints.clear()  # the browser notes the 401 as an error
        browser.go("about:blank")
        browser.go(f"http://127.0.0.1:{server.server_port}/#{SECRET}")
        browser.until("document.querySelectorAll('article img').length === 1")
        assert browser.js("location.href").endswith("/"), "the token does not stay in the address"
        assert browser.js("document.querySelectorAll('article script, dd img').length") == 0
        assert "<script>" in browser.js("document.querySelector('dd').textContent")
        for width in (1200, 380):
            browser.size(width)
            assert browser.js("document.documentElement.scrollWidth <= window.innerWidth")
        browser.js(
            "document.querySelector('[id^=by-]').value = 'Ann';"
            "document.querySelector('[id^=reason-]').value = 'no face in it';"
            "document.querySelector('button[value=denied]').click()"
        )
        browser.until("document.querySelector('h2').textContent.includes('denied')")
        assert browser.complaints == []
        assert all(
            url.startswith((f"http://127.0.0.1:{server.server_port}/", "blob:", "about:")) for url in browser.requests
        )
    assert EgressLog(waiting).rows()[-1]["reason"] == "no face in it"
