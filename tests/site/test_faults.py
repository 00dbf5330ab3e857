"""A site whose disk is full, or that is killed while it computes: nothing is damaged, lost or charged twice."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
from prismfl.core.door import PrivateRecords
from prismfl.core.method import State
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.directory import RunDirectory
from prismfl.server import serving
from prismfl.site.egress import EgressLog
from prismfl.transport.flower.adapter import GridPost
from tests.site.folders import NAMES, make_run, make_site
from tests.site.test_office import ask, description
from tests.transport.test_flower import RULES, grid_of

MOUNT = """
import json, os, subprocess, sys
from pathlib import Path
root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={sys.argv[2]}", "tmpfs", str(root)], check=True)
def fill():
    size = 2**20
    with (root / "filler").open("wb", buffering=0) as file:
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
"""
FULL = """
from prismfl.errors import LedgerError
from prismfl.privacy.ledger.book import Ledger
from prismfl.site.egress import EgressLog
from prismfl.transport.post import Request
from tests.site.folders import make_site
from tests.site.test_office import ask, description
office = make_site(root, "north", noise="operating-system")
told = description(settings={"rounds": 4})
first = ask(office, told, 0)
fill()
codes = [office.answer(Request("hello", told)), ask(office, told, 1), office.answer(Request("finish", told, 4))]
try:
    Ledger.open(office.folder / "ledger.sqlite").shut()
    opened = "opened"
except LedgerError as error:
    opened = error.code
(root / "filler").unlink()
ledger = Ledger.open(office.folder / "ledger.sqlite")
during = [charge.release[-1] for charge in ledger.charges()]
ledger.shut()
after = [ask(office, told, round) for round in (0, 1, 2)]
ledger = Ledger.open(office.folder / "ledger.sqlite")
ledger.verify()
sys.stdout.write(json.dumps({
    "first": first.kind, "codes": [[a.kind, a.code, len(a.body)] for a in codes], "opened": opened, "during": during,
    "after": [a.kind for a in after], "same": after[0].body == first.body, "egress": EgressLog(office.folder).verify(),
    "charged": [charge.release[-1] for charge in ledger.charges()],
    "log": (office.folder / "site.log").read_text(),
}))
"""


def on_a_small_disk(script: str, place: Path, size: str) -> Any:
    """What a script prints that begins with a file system of its own at `place`."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Urm", "true"], check=False).returncode:
        pytest.skip("no mount name space of one's own")
    command = [unshare, "-Urm", sys.executable, "-c", MOUNT + script, str(place), size]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SERVER_FULL = """
from prismfl.errors import PrismError
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.directory import RunDirectory
from prismfl.server import serving
from prismfl.server.starting import follow
from prismfl.transport.flower.adapter import GridPost
from tests.site.folders import NAMES, make_run, make_site, run_config
from tests.transport.test_flower import PATIENT, grid_of
(root / "server").mkdir()
sites = root.parent / "sites"  # each on a disk of its own
offices = [make_site(sites, name, noise="operating-system") for name in NAMES]
directory = make_run(root / "run", PATIENT, run_config(settings={"rounds": 4}))
names = {f"key of {name}".encode(): name for name in NAMES}
def say(line):
    if line.startswith("round 2 of"):
        fill()
class SuperLink:
    alive = staticmethod(lambda: True)
def serve():
    # in a process of its own, as a server's run is; then what the operator is told of its end
    pid = os.fork()
    if pid == 0:
        try:
            serving.serve(directory.path, GridPost(grid_of(offices), names, refresh=0.0), say=say)
        except (OSError, PrismError):
            os._exit(1)
        os._exit(0)
    os.waitpid(pid, 0)
    try:
        follow(directory, SuperLink, lambda line: None)
        return "done"
    except PrismError as error:
        return str(error)
first = serve()
(root / "filler").unlink()
say = lambda line: None
after = directory.load_state().round
again = serve()
charges = []
for office in offices:
    with Ledger.open(office.folder / "ledger.sqlite") as ledger:
        ledger.verify()
        charges.append([charge.release[-1] for charge in ledger.charges()])
sys.stdout.write(json.dumps({
    "first": first, "after": after, "again": again, "status": RunDirectory.open(root / "run").status, "charges": charges
}))
"""


@pytest.mark.processes
def test_a_servers_full_disk_stops_the_run_and_space_lets_it_go_on(tmp_path: Path) -> None:
    """A real file system again: whatever the server cannot write, its last checkpoint is whole."""
    (tmp_path / "disk").mkdir()
    found = on_a_small_disk(SERVER_FULL, tmp_path / "disk", "6m")
    assert "is full; free space there, then go on with: prismfl server start --resume" in found["first"], found
    assert found["after"] in (1, 2)
    assert (found["again"], found["status"]) == ("done", "finished")
    assert found["charges"] == [["0", "1", "2", "3"]] * 3


@pytest.mark.processes
def test_a_full_disk_is_refused_named_and_overcome(tmp_path: Path) -> None:
    """A real file system of a few megabytes, filled to its last byte in mid-run."""
    found = on_a_small_disk(FULL, tmp_path, "3m")
    assert found["first"] == "release"
    assert found["codes"][0] in (["ready", "", 0], ["code", "refused", 0])
    assert found["codes"][1:] == [["code", "refused", 0], ["done", "", 0]], "one constant answer each"
    assert found["opened"] in ("opened", "disk-full"), "a full disk is no damage"
    assert "is full; free space there and go on" in found["log"]
    assert found["during"] in (["0"], ["0", "1"])
    if found["during"] == ["0"]:
        assert found["after"] == ["release"] * 3, "nothing was charged for what was not computed"
    assert found["after"][::2] == ["release", "release"]
    assert found["same"], "what was released before is sent again, byte for byte"
    assert len(found["charged"]) == len(set(found["charged"])) == 3
    assert found["egress"] > 3


def _killed_while_it_computes(root: Path) -> None:
    def die(*args: object, **kwargs: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    PrivateRecords.noisy_gradient = die  # type: ignore[assignment, method-assign]
    ask(make_site(root, "north"), description(), 0)


def test_a_kill_while_a_site_computes_costs_that_round_and_no_other(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_killed_while_it_computes, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    office = make_site(tmp_path, "north")
    for _ in range(2):
        answer = ask(office, description(), 0)
        assert (answer.kind, answer.code) == ("code", "refused")
    assert ask(office, description(), 1).kind == "release"
    with Ledger.open(office.folder / "ledger.sqlite") as ledger:
        ledger.verify()
        assert [(charge.release[-1], charge.status) for charge in ledger.charges()] == [("0", "charged"), ("1", "made")]
    assert [row["round"] for row in EgressLog(office.folder).rows() if row["what"] == "release"] == [1]


def test_a_server_whose_disk_was_full_goes_on_and_nobody_pays_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offices = [make_site(tmp_path / "sites", name, noise="operating-system") for name in NAMES]
    directory = make_run(tmp_path / "run", RULES)
    names = {f"key of {name}".encode(): name for name in NAMES}
    save = RunDirectory.save_state

    def full(self: RunDirectory, state: State) -> None:
        if state.round == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "save_state", full)
        with pytest.raises(OSError, match="No space left"):
            serving.serve(directory.path, GridPost(grid_of(offices), names, refresh=0.0), say=lambda line: None)
    serving.serve(directory.path, GridPost(grid_of(offices), names, refresh=0.0), say=lambda line: None)
    assert directory.status == "finished"
    for office in offices:
        with Ledger.open(office.folder / "ledger.sqlite") as ledger:
            assert [charge.release[-1] for charge in ledger.charges()] == ["0", "1"]
