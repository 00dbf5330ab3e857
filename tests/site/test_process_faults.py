"""Faults of an operator's day with real processes: a renewed certificate and restarted sites in the middle of a run,
two servers at once. Nothing is lost, and nothing is charged twice."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
from prismfl.privacy import account
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.description import declared, describe, job_of
from prismfl.runs.directory import RunDirectory
from prismfl.server.config import ServerConfig, enroll, init_server
from prismfl.site.certificates import renew_server
from prismfl.site.config import as_toml
from prismfl.site.egress import EgressLog
from prismfl.site.servers import AllowedServer, add_server
from prismfl.transport.faults import faults
from prismfl.transport.flower.children import free_port
from tests.site.folders import NAMES, make_site, run_config
from tests.site.test_processes import PATIENCE, RUN, Federation

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200), pytest.mark.xdist_group("processes")]


def new(root: Path, *, rounds: int, quorum: int = 3, deadline: float = PATIENCE) -> Federation:
    """A federation whose sites draw real noise."""
    made = Federation(root)
    made.configure(quorum=quorum, deadline=deadline)
    (root / "run.toml").write_text(RUN.replace("rounds = 3", f"rounds = {rounds}"))
    for name in NAMES:
        make_site(root, name, noise="operating-system")
    return made


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Federation]]]:
    made: list[Federation] = []
    yield tmp_path_factory.mktemp("faults"), made
    for federation in made:
        federation.end()


def nothing_lost_nothing_twice(federation: Federation, rounds: int) -> list[int]:
    """The run is whole, every log and ledger verifies, no release has two charges or two contents."""
    directory = federation.directory()
    assert directory.status == "finished"
    charged = []
    for name in NAMES:
        site, rows = federation.root / name, EgressLog(federation.root / name).rows()
        EgressLog(site).verify()
        with Ledger.open(site / "ledger.sqlite", create=False) as ledger:
            ledger.verify()
            releases = [charge.release for charge in ledger.charges()]
        assert len(releases) == len(set(releases)) <= rounds
        left = {(row["round"], row["digest"]) for row in rows if row["what"] == "release"}
        assert len(left) == len({round for round, _ in left}), "one content a round, however often it was sent"
        arrived = {(m.round, m.digest) for m in directory.messages() if m.site == name and m.direction == "up"}
        assert arrived <= left
        charged.append(len(releases))
    return charged


def test_a_certificate_is_renewed_and_sites_are_restarted_in_any_order(
    folder: tuple[Path, list[Federation]],
) -> None:
    """Quorum three of three: a round that lost anybody would end the run."""
    root, made = folder
    federation = new(root, rounds=8)
    made.append(federation)
    sites = {name: federation.join(name) for name in ("west", "north", "south")}  # before there is a server
    server = federation.prismfl("server", "start", "server", "run.toml")
    federation.wait("the first round", lambda: federation.rounds_done() >= 1)

    shown = served(federation)
    renew_server(federation.server / "keys")  # what `prismfl server renew` does, without the seconds of its start
    assert served(federation) == shown, "it serves from the next start on: nobody is cut off"
    server.terminate()
    federation.wait("the server to stop", lambda: ended(server))
    assert federation.rounds_done() < 8
    assert server.returncode == 130
    assert "go on with: prismfl server start server --resume" in federation.logs()
    server = federation.prismfl("server", "start", "server", "--resume")
    federation.wait("the new certificate", lambda: served(federation) not in ("", shown))

    for name in ("south", "west", "north"):
        sites[name].terminate()
    for name in ("north", "south", "west"):
        sites[name].wait()
        federation.join(name)
    federation.wait("the end of the run", lambda: ended(server))
    assert server.returncode == 0, federation.logs()
    assert {fault.code for fault in faults(federation.directory())} <= {"missed-the-end"}  # a busy machine's
    assert nothing_lost_nothing_twice(federation, 8) == [8, 8, 8]


def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def served(federation: Federation) -> str:
    """The certificate that the server shows to a site, which trusts it; nothing while it does not listen."""
    host, _, port = federation.address.partition(":")
    try:
        return ssl.get_server_certificate((host, int(port)), ca_certs=str(federation.server / "keys" / "ca.pem"))
    except ConnectionError:
        return ""


def test_two_servers_at_once_share_one_ledger_and_one_cap(folder: tuple[Path, list[Federation]]) -> None:
    """A cap for one run and a half: one server gets its run, the other is refused until the cap is raised."""
    root, made = folder
    federation = Federation(root)
    made.append(federation)
    config = run_config(settings={"rounds": 2})
    cost = account.epsilon(job_of(describe(config, declared(config)[0], ["north"])).site_plan(), 1e-5)
    own: dict[str, Any] = {"noise": "operating-system", "part": None, "parts": 1}
    make_site(root, "north", cap=1.5 * cost, **own)
    (root / "run.toml").write_text(RUN.replace("rounds = 3", "rounds = 2"))
    running = {}
    for name in ("one", "two"):
        port = free_port()
        init_server(root / name, ServerConfig(), ["127.0.0.1"])
        settings = ServerConfig(port=port, quorum=1, deadline=PATIENCE, join=PATIENCE)
        (root / name / "server.toml").write_text(as_toml(settings))
        enroll(root / name, "north", root / "north" / "keys" / "node.pub")
        known = AllowedServer(address=f"127.0.0.1:{port}")
        add_server(root / "north", name, known, root / name / "keys" / "ca.pem")
        running[name] = federation.prismfl("server", "start", name, "run.toml")
        federation.prismfl("site", "join", "north", name)
    federation.wait("one to be refused", lambda: bool(refused_at(root)))
    (refused,) = refused_at(root)
    (other,) = {"one", "two"} - {refused}
    federation.wait("the other to end", lambda: ended(running[other]))
    assert running[other].returncode == 0, federation.logs()
    assert federation.prismfl("server", "stop", refused).wait() == 0
    federation.wait("it to stop", lambda: ended(running[refused]))
    assert len(releases(root / "north")) == 2, "nothing was charged for what was refused"
    make_site(root, "north", cap=3 * cost, **own)
    again = federation.prismfl("server", "start", refused, "--resume")
    federation.wait("the other run", lambda: ended(again))
    assert again.returncode == 0, federation.logs()
    found = releases(root / "north")
    assert len(found) == len(set(found)) == 4
    runs = [RunDirectory.open(next((root / name / "runs").glob("*"))) for name in ("one", "two")]
    digests = [{m.digest for m in run.messages() if m.direction == "up"} for run in runs]
    assert not digests[0] & digests[1], "none gets what was released to the other"
    with Ledger.open(root / "north" / "ledger.sqlite", create=False) as ledger:
        (status,) = ledger.status()
    assert status.used is not None
    assert status.used <= 1


def refused_at(root: Path) -> list[str]:
    """The servers to which the site has said no."""
    notes = {name: list((root / name / "runs").glob("*/federation.json")) for name in ("one", "two")}
    runs = {name: RunDirectory.open(found[0].parent) for name, found in notes.items() if found}
    return [name for name, run in runs.items() if "refused" in {fault.code for fault in faults(run)}]


def releases(site: Path) -> list[str]:
    with Ledger.open(site / "ledger.sqlite", create=False) as ledger:
        ledger.verify()
        return [charge.release for charge in ledger.charges()]
