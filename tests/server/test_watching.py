"""What a monitor reads of a server: rounds, replies, who was dropped, bytes, contacts, certificates."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("flwr")
from prismfl.server import serving
from prismfl.server.config import ServerConfig, enroll, init_server
from prismfl.server.contacts import contacts, note_contacts
from prismfl.server.running import status
from prismfl.server.watching import is_ready, is_running, metrics, watched
from prismfl.site.keys import make_site_keys
from prismfl.site.watching import metrics as site_metrics
from prismfl.transport.flower import adapter as flower
from prismfl.transport.watch import text_of
from tests.site.folders import NAMES, make_run, make_site
from tests.transport.test_flower import RULES, grid_of


@pytest.fixture
def server(tmp_path: Path) -> Path:
    folder = tmp_path / "server"
    init_server(folder, ServerConfig(quorum=2), ["127.0.0.1"])
    for name in NAMES:
        make_site_keys(tmp_path / name)
        enroll(folder, name, tmp_path / name / "node.pub")
    return folder


def page(folder: Path) -> dict[str, str]:
    lines = text_of(metrics(folder)).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_a_run_is_in_the_numbers(server: Path, tmp_path: Path) -> None:
    assert page(server)["prismfl_server_rounds_total"] == "0"
    offices = [make_site(tmp_path / "sites", name) for name in NAMES]
    offices[2] = make_site(tmp_path / "sites", "west", methods=["fedavg"])
    directory = make_run(server / "runs" / "one", RULES)
    names = {f"key of {name}".encode(): name for name in NAMES}
    post = flower.GridPost(grid_of(offices), names, refresh=0.0, seen=note_contacts(server))
    serving.serve(directory.path, post, say=lambda line: None)
    found = page(server)
    assert found["prismfl_server_rounds_total"] == "2"
    assert found['prismfl_server_replies_total{site="north"}'] == "2"
    assert int(found['prismfl_server_dropped_total{code="method-not-allowed"}']) >= 1
    assert int(found['prismfl_server_bytes_total{direction="up"}']) > 1000
    assert found['prismfl_server_runs{status="finished"}'] == "1"
    assert float(found["prismfl_server_round_seconds"]) >= 0
    assert abs(float(found['prismfl_server_contact_seconds{site="south"}']) - time.time()) < 600
    assert set(contacts(server)) == set(NAMES)
    ages = status(server)["contact"]
    assert all(age is not None and age < 600 for age in ages.values())


def test_ready_is_certificates_and_a_quorum(server: Path) -> None:
    assert is_ready(server)
    assert not is_running(server)
    (server / "server.pid").write_text(str(os.getpid()))
    assert watched(server).healthy()
    assert status(server)["certificates"] == []
    (server / "sites" / "north.pub").unlink()
    (server / "sites" / "south.pub").unlink()
    assert not is_ready(server)
    (server / "keys" / "server.pem").write_text("")
    assert not watched(server).ready()
    assert "is not a certificate" in status(server)["certificates"][0]


def test_the_example_alerts_speak_of_numbers_that_are_there(server: Path, tmp_path: Path) -> None:
    alerts = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "alerts.yml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"prismfl_\w+", rule["expr"])}
    office = make_site(tmp_path, "north")
    known = {metric.name for metric in (*metrics(server), *site_metrics(office.folder))}
    assert len(rules) >= 8
    assert asked <= known
