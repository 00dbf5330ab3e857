"""The dashboard: loopback and a token, nothing outside the folder, live progress, a page that works in a browser."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
import time
from multiprocessing import Queue, get_context
from pathlib import Path
from queue import Empty

import pytest

from prismfl.errors import UserError
from prismfl.files import inside as run_files
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig
from tests.report.browser import check_looks, on_screen, open_browser

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from prismfl.report.charts import PALETTE, colour_of
from prismfl.report.dashboard import make_app, row_of
from prismfl.runs.directory import runs_below
from prismfl.transport.local import HOST

TOKEN = "the-right-token"
HERE = f"http://{HOST}:8000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    simulate.run(
        RunConfig(
            method="ldp-fedsgd",
            data="digits",
            model="logreg",
            sites=2,
            epsilon=3.0,
            out=str(root / "a" / "done"),
            settings={"rounds": 2},
        )
    )
    running = root / "b" / "going"
    running.mkdir(parents=True)
    (running / "run.json").write_text(json.dumps({"schema_version": 2, "status": "running"}))
    (running / "config.json").write_text(
        json.dumps({"run": "x", "method": "dp-fedavg", "data": "<b>digits</b>", "settings": {"rounds": 10}})
    )
    (running / "metrics.jsonl").write_text(json.dumps({"round": 4, "accuracy": 41.5, "epsilon": 0.7, "seconds": 3.0}))
    (root / "c").mkdir()
    (root / "c" / "run.json").write_text("{")
    return root


@pytest.fixture
def client(folder: Path) -> TestClient:
    return TestClient(make_app(folder, TOKEN), base_url=HERE, follow_redirects=False)


@pytest.fixture
def inside(client: TestClient) -> TestClient:
    client.cookies.set("prismfl", TOKEN)
    return client


@pytest.mark.parametrize("address", ["/", "/api/runs", "/api/methods", "/report?run=a/done"])
def test_nothing_without_the_token(client: TestClient, address: str) -> None:
    assert client.get(address).status_code == 401
    assert client.get(address, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get(address, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/enter?token=wrong").status_code == 401
    entered = client.get(f"/enter?token={TOKEN}")
    assert entered.status_code == 303
    assert "HttpOnly" in entered.headers["set-cookie"]


def test_only_loopback_names_are_answered(inside: TestClient) -> None:
    for host in ("evil.example", "evil.example:8000", "testserver", "127.0.0.1:8001", ""):
        assert inside.get("/", headers={"host": host}).status_code == 421
    assert inside.get("/", headers={"host": "localhost:8000"}).status_code == 200
    assert HOST == "127.0.0.1"


def test_runs_are_listed_finished_running_and_damaged(folder: Path, inside: TestClient) -> None:
    rows = {row["id"]: row for row in inside.get("/api/runs").json()["runs"]}
    assert rows["a/done"]["status"] == "finished"
    assert rows["a/done"]["epsilon"] <= 3.0
    assert (rows["b/going"]["done"], rows["b/going"]["rounds"]) == (4, 10)
    assert rows["c"]["status"] == "unreadable"
    assert {row_of(p, folder)["id"] for p in runs_below(folder)} == set(rows)
    assert rows["b/going"]["colour"] == colour_of("dp-fedavg")
    assert rows["a/done"]["group"] == "digits, per record, add-remove, delta 1e-05"
    assert rows["a/done"]["group"] != rows["b/going"]["group"]


def test_a_report_of_a_run_in_the_folder_and_of_nothing_else(inside: TestClient, tmp_path: Path) -> None:
    good = inside.get("/report", params={"run": ["a/done"]})
    assert good.status_code == 200
    assert "Simulation: no protection" in good.text
    assert "Every record is protected" not in good.text
    assert "Sharing edition" in good.text
    assert "On-site edition" in inside.get("/report", params={"run": ["a/done"], "on_site": "true"}).text
    assert "script-src" not in good.headers["content-security-policy"]
    for name in ("../..", "/etc", "a/../../x", "nothing"):
        assert inside.get("/report", params={"run": [name]}).status_code == 400
    assert inside.get("/report", params={"run": ["a/done"] * 9}).status_code == 400


def test_the_planner_shows_what_halving_epsilon_costs(inside: TestClient) -> None:
    asked = {"method": "dp-fedavg", "data": "mnist-5k", "epsilon": 2.0, "sites": 5, "settings": {"rounds": 3}}
    found = inside.post("/api/plan", json=asked).json()
    assert 1.5 < found["half"]["sigma"] / found["asked"]["sigma"] < 2.5
    assert found["asked"]["epsilon"] <= 2.0
    wrong = inside.post("/api/plan", json={**asked, "epsilon": -1})
    assert wrong.status_code == 400
    assert "epsilon" in wrong.json()["error"]


def test_the_planner_scales_the_time_of_the_last_run_of_this_kind(inside: TestClient, folder: Path) -> None:
    done = next(row for row in inside.get("/api/runs").json()["runs"] if row["id"] == "a/done")
    asked = {"method": done["method"], "data": done["data"], "epsilon": 2.0, "sites": 2, "records": 50}
    once = inside.post("/api/plan", json={**asked, "settings": {"rounds": 2}}).json()["asked"]["hours"]
    thrice = inside.post("/api/plan", json={**asked, "settings": {"rounds": 6}}).json()["asked"]["hours"]
    assert once > 0
    assert thrice == pytest.approx(3 * once)
    other = inside.post("/api/plan", json={**asked, "method": "dp-fedprox"}).json()
    assert other["asked"]["hours"] is None


def spoil(kind: str, file: Path, outside: Path) -> None:
    """`file` of a run folder, made by somebody who wants the page to fall, to wait, or to tell."""
    file.unlink(missing_ok=True)
    if kind == "deep":
        file.write_text('{"schema_version": 1, "status": ' + "[" * 200_000 + "]" * 200_000 + "}")
    elif kind == "deep enough":
        file.write_text('{"schema_version": 2, "status": "running", "method": ' + "[" * 300 + "]" * 300 + "}\n")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "huge":
        with file.open("wb") as hole:
            hole.truncate(2**40)
    elif kind == "link":
        file.symlink_to(outside)
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "odd":
        file.write_text('{"round": 1, "accuracy": "<b>", "method": [], "settings": null}\n')
    elif kind == "endless":
        file.write_text('{"round": 1, "accuracy": 1e999, "schema_version": 1, "method": 1e999}\n')
    else:
        file.write_text('{"round": 1, "accuracy": NaN, "schema_version": 1, "method": NaN}\n')


PATIENCE = 240
KINDS = ("deep", "deep enough", "pipe", "huge", "link", "loop", "odd", "endless", "not a number")


def test_files_of_a_run_are_read_within_bounds(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "a.json").write_text('{"a": [1, 2.5, null]}')
    assert run_files.read_json(tmp_path, "a.json") == {"a": [1, 2.5, None]}
    assert run_files.parse("[" * 32 + "]" * 32, "x") is not None
    for depth in (34, 400, 200_000):
        with pytest.raises(UserError, match=r"nested deeper|not readable"):
            run_files.parse("[" * depth + "]" * depth, "x")
    for text in ("NaN", "-Infinity", "1e999", "{", "1" * 10_000):
        with pytest.raises(UserError, match="not readable JSON"):
            run_files.parse(text, "x")
    with pytest.raises(UserError, match="at most 20 bytes"):
        run_files.read_bytes(tmp_path, "a.json", most=20)
    for name in ("../outside.json", "/etc/hostname"):
        with pytest.raises(UserError, match="outside the run"):
            run_files.read_bytes(tmp_path, name, most=20)
    with pytest.raises(FileNotFoundError):
        run_files.read_bytes(tmp_path, "none.json", most=20)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["run.json", "config.json", "metrics.jsonl"])
def test_one_spoilt_folder_is_one_line_and_the_others_stay(tmp_path: Path, name: str, kind: str) -> None:
    check_spoilt(tmp_path, name, kind)


def check_spoilt(tmp_path: Path, name: str, kind: str) -> None:
    """In a process of its own, which is ended when it waits; the rows and the report of the good run must be there."""
    root = tmp_path / "runs"
    for run in ("good", "bad"):
        (root / run).mkdir(parents=True)
        (root / run / "run.json").write_text(json.dumps({"schema_version": 2, "status": "running"}))
        (root / run / "config.json").write_text(json.dumps({"run": "x", "method": "fedavg", "data": "digits"}))
        (root / run / "metrics.jsonl").write_text(json.dumps({"round": 1, "accuracy": 41.5}) + "\n")
    secret = tmp_path / "outside.json"
    secret.write_text(json.dumps({"schema_version": 1, "status": "SECRET", "method": "SECRET", "round": 77777}) + "\n")
    spoil(kind, root / "bad" / name, secret)
    said = answered(root)
    assert '"id":"good","status":"running"' in said
    assert "SECRET" not in said
    assert "77777" not in said


def answered(root: Path) -> str:
    """What the list and the report of the bad run say, asked in a child that cannot make the test wait."""
    asked: Queue[str] = get_context("fork").Queue()
    child = get_context("fork").Process(target=_ask, args=(root, asked), daemon=True)
    child.start()
    try:
        said = asked.get(timeout=PATIENCE)
    except Empty:
        pytest.fail("the page waits for ever")
    finally:
        child.kill()
        child.join()
    return said


def _ask(root: Path, asked: Queue[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))  # a file that is read without end ends here
    told = TestClient(make_app(root, TOKEN), base_url=HERE, raise_server_exceptions=False)
    told.cookies.set("prismfl", TOKEN)
    rows, page = told.get("/api/runs"), told.get("/report", params={"run": ["bad"]})
    codes = {rows.status_code, page.status_code}
    asked.put(rows.text + page.text if codes <= {200, 400} else f"{codes}")


@pytest.mark.processes
def test_in_a_real_browser(folder: Path, tmp_path: Path) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(make_app(folder, TOKEN), host=HOST, port=port, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 120
    while not server.started and time.monotonic() < end:
        time.sleep(0.05)
    try:
        with open_browser(tmp_path) as browser:
            browser.go(f"http://{HOST}:{port}/enter?token={TOKEN}")
            browser.until("document.querySelectorAll('#rows tr').length === 3")
            assert "running 4 / 10" in browser.js("document.body.innerText")
            assert browser.js("document.querySelectorAll('#rows b').length") == 0, "a run's text became markup"
            assert browser.js("document.querySelectorAll('#plane circle').length") >= 2
            assert browser.js("document.querySelectorAll('#plane figure').length") == 2, "unlike data share a chart"
            found = check_looks(browser, (360, 390, 1200, 1600))
            assert found == {name: on_screen(PALETTE[colour_of(name)]) for name in ("ldp-fedsgd", "dp-fedavg")}
            browser.js("document.getElementById('p-method').value = 'dp-fedavg'")
            browser.js("document.querySelector('#plan button').click()")
            browser.until("document.querySelectorAll('#planned tbody tr').length >= 8")
            browser.js("document.getElementById('f-status').value = 'running'")
            browser.js("document.getElementById('f-status').dispatchEvent(new Event('input'))")
            assert browser.js("document.querySelectorAll('#rows tr').length") == 1
            assert all(f"//{HOST}:{port}/" in r or r.startswith(("data:", "about:")) for r in browser.requests)
            assert browser.complaints == []
    finally:
        server.should_exit = True
        thread.join(timeout=120)
