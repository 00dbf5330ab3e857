"""A site in a network of its own: it is cut off in a run and comes back, and from there only the sites' interface
of the server can be reached. Needs the right to make network namespaces; skipped without it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

pytest.importorskip("flwr")
from prismfl.server.config import ServerConfig
from prismfl.site.certificates import make_authority
from prismfl.site.config import as_toml
from prismfl.transport.faults import faults
from tests.site.test_processes import PATIENCE, Federation

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
SPACE, HERE, THERE = "prismfl-test", "10.213.77.1", "10.213.77.2"
PROBE = """
import http.client, json, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
found = {}
for path in ("/v1/fleet/clock", "/v1/control/list-runs", "/v1/runtime/anything", "/"):
    connection = http.client.HTTPSConnection(sys.argv[1], int(sys.argv[2]), timeout=120, context=context)
    connection.request("POST", path, body=b"")
    found[path] = connection.getresponse().status
print(json.dumps(found))
"""


def ip(*words: str) -> bool:
    try:
        return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def cut(down: bool) -> None:
    assert ip("link", "set", "prismfl-here", "down" if down else "up")


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    ip("netns", "del", SPACE)
    made = (
        ip("netns", "add", SPACE)
        and ip("link", "add", "prismfl-here", "type", "veth", "peer", "name", "prismfl-there", "netns", SPACE)
        and ip("addr", "add", f"{HERE}/24", "dev", "prismfl-here")
        and ip("link", "set", "prismfl-here", "up")
        and ip("-n", SPACE, "addr", "add", f"{THERE}/24", "dev", "prismfl-there")
        and ip("-n", SPACE, "link", "set", "prismfl-there", "up")
        and ip("-n", SPACE, "link", "set", "lo", "up")
    )
    if not made:
        ip("netns", "del", SPACE)
        pytest.skip("network namespaces cannot be made here")
    yield
    ip("netns", "del", SPACE)
    ip("link", "del", "prismfl-here")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, network: None) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("network"))
    for key in (made.server / "keys").iterdir():
        key.unlink()
    make_authority(made.server / "keys", [HERE, "127.0.0.1"])
    for name in ("north", "west"):
        (made.root / name / "keys" / "ca.pem").write_bytes((made.server / "keys" / "ca.pem").read_bytes())
    (made.server / "sites" / "south.pub").unlink()
    yield made
    made.end()


def configure(federation: Federation, deadline: float) -> None:
    port = int(federation.address.rpartition(":")[2])
    config = ServerConfig(host="0.0.0.0", port=port, quorum=1, deadline=deadline, join=PATIENCE)
    (federation.server / "server.toml").write_text(as_toml(config))


def join_from_there(federation: Federation) -> subprocess.Popen[bytes]:
    port = federation.address.rpartition(":")[2]
    command = ["ip", "netns", "exec", SPACE, sys.executable, "-m", "prismfl", "site", "join", "west", f"{HERE}:{port}"]
    with (federation.root / "site-join-west.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=federation.root)
    federation.started.append(process)
    return process


ROUNDS = 14


def test_a_site_that_is_cut_off_is_named_and_comes_back(federation: Federation) -> None:
    deadline = 45.0  # a round takes six seconds, and fifteen with ten others on each core
    configure(federation, deadline)
    run = federation.root / "run.toml"
    run.write_text(run.read_text().replace("rounds = 3", f"rounds = {ROUNDS}"))  # a lost site holds up one of them only
    federation.join("north")
    server = federation.prismfl("server", "start", "server", "run.toml")
    federation.wait("the server", lambda: _listens(federation))
    _only_the_sites_interface_is_open(federation)
    join_from_there(federation)  # the run does not begin without it
    federation.wait("the first round", lambda: federation.rounds_done() >= 1)
    assert {m.site for m in federation.directory().messages()} == {"north", "west"}
    cut(down=True)
    federation.wait("a round without west", lambda: bool(faults(federation.directory())))
    cut(down=False)
    federation.wait("the end of the run", lambda: server.poll() is not None)
    assert server.returncode == 0, federation.logs()
    directory = federation.directory()
    assert {fault.site for fault in faults(directory)} == {"west"}
    assert {fault.code for fault in faults(directory)} <= {"late", "missed-the-end"}
    crossed = {(m.round, m.site) for m in directory.messages()}
    assert all((round, "north") in crossed for round in range(ROUNDS))
    gaps = [row["seconds"] for row in directory.metrics()]
    assert max(b - a for a, b in pairwise(gaps)) < 2 * deadline
    assert any((round, "west") in crossed for round in range(2, ROUNDS)), federation.logs()


def _listens(federation: Federation) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(federation.address.rpartition(":")[2]))) == 0


def _only_the_sites_interface_is_open(federation: Federation) -> None:
    port, ca = federation.address.rpartition(":")[2], federation.server / "keys" / "ca.pem"
    command = ["ip", "netns", "exec", SPACE, sys.executable, "-c", PROBE, HERE, port, str(ca)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=600).stdout)
    assert told.pop("/v1/fleet/clock") != http.client.FORBIDDEN
    assert set(told.values()) == {http.client.FORBIDDEN}
