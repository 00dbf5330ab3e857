"""A site's folder is for the site alone: every folder 0700, every file 0600, under the umask of a usual machine; and
what its logs hold never quotes a record."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prismfl.core.door import PrivateRecords
from prismfl.errors import BudgetError, CellError, UserError, words_for_log
from prismfl.files.atomic import make_folder, opener, write_atomically
from prismfl.runs.description import declared, describe
from prismfl.site.folder import OneLine, SiteLog, close_site
from prismfl.site.office import Office
from prismfl.transport.post import Request
from tests.site.folders import NAMES, make_site, run_config
from tests.site.test_commands import prismfl
from tests.site.test_office import ask, description

SENTINEL = "Jane-Doe-4711"

# A process of its own, since the umask belongs to one. It prints the modes of all that lies in the site's folder while
# the ledger is open, after: init, hello, a held round with a picture, the person's word, the round, the end, a bundle.
LIFE = """
import json, os, shutil, sys
from pathlib import Path

from prismfl.cli.main import app
from prismfl.transport.flower.guard import write_commands
from prismfl.transport.post import Request
from prismfl.errors import PrismError
from prismfl.site.bundle import Peer
from prismfl.runs.description import describe, job_of
from prismfl.site.approvals import Approvals
from prismfl.site.office import Office
from prismfl.runs.description import declared
from prismfl.methods import METHODS
from prismfl.core.payloads import encode
from prismfl.privacy.ledger.book import Ledger
from prismfl.core.rounds import initial_state
from tests.site.folders import NAMES, run_config

root = Path(sys.argv[1])
folder = root / "north"
modes = {}


def look():
    for path in (folder, *folder.rglob("*")):
        modes[str(path.relative_to(root))] = path.lstat().st_mode


def approve():
    for held in Approvals(folder).all():
        if held.decision == "waiting":
            Approvals(folder).decide(held.id, "approved", by="Ann", reason="looked")


def ask(office, kind, told, round=0):
    state = initial_state(job_of(told))
    down = encode(state.items, {"round": round})
    return office.answer(Request(kind, told, round, 0.0, down))


for name in ("north", "south"):
    app(
        ["site", "init", str(root / name), "--name", name, "--data", "digits", "--method", "fedlap-dp"]
        + ["--cap", "none", "--approval"],
        standalone_mode=False,
    )
look()
assert os.umask(0o022) == 0o022, "the umask is the caller's again"
config = run_config(method="fedlap-dp", model="mlp:8")
config = config.model_copy(update={"settings": {**METHODS["fedlap-dp"].tiny, "sigma": 1.0, "rounds": 1}})
told = describe(config, declared(config)[0], NAMES)
office = Office.open(folder)
assert office.answer(Request("hello", told)).kind == "ready"
ledger = Ledger.open(folder / "ledger.sqlite")
assert ask(office, "round", told).code == "refused"
look()
approve()
assert ask(office, "round", told).kind == "release"
look()
answer = ask(office, "finish", told, 1)
assert answer.kind == "done", answer
write_commands(folder / "bin")
(folder / "peers").mkdir()
shutil.copyfile(root / "south" / "keys" / "sign.pub", folder / "peers" / "south.pub")
for _ in range(2):
    try:
        Peer.open(folder, config).export(root / "shared")
    except PrismError as error:
        assert "refused" in str(error), error
        approve()
look()
print(json.dumps(modes))
"""


def in_process(code: str, *arguments: str | Path, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )


def open_root(tmp_path: Path) -> Path:
    """Like a usual place: others may look. (pytest's own folders are closed.)"""
    tmp_path.chmod(0o755)
    return tmp_path


def test_all_that_a_site_makes_is_closed_to_others(tmp_path: Path) -> None:
    done = in_process(LIFE, open_root(tmp_path))
    assert done.returncode == 0, done.stderr
    modes: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, mode in modes.items() if mode & 0o077] == []
    made = " ".join(modes)
    for name in ("job.json", "memory/", "egress/", "outbox/", "images.png", "preview.txt", "decision", "sign.key"):
        assert name in made
    for name in ("sqlite-wal", "sqlite-shm", ".lock", ".anchor", "site.log", "site.toml", "final.safetensors"):
        assert name in made
    (bundle,) = (tmp_path / "shared").iterdir()
    assert bundle.stat().st_mode & 0o777 == 0o644  # what is meant for the others is theirs to read


def test_a_file_is_closed_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = os.fsync

    def look(handle: int) -> None:
        seen.append(os.fstat(handle).st_mode & 0o777)
        real(handle)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        make_folder(tmp_path / "site", closed=True)
        write_atomically(tmp_path / "site" / "runs" / "x" / "job.json", b"{}")
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert (tmp_path / "site" / "runs").stat().st_mode & 0o777 == 0o700


def test_two_that_write_the_same_file_leave_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins and ends while the first has not renamed its own."""
    path, real = tmp_path / "state", os.fsync

    def second(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        write_atomically(path, b"second")
        real(handle)

    monkeypatch.setattr(os, "fsync", second)
    write_atomically(path, b"the first, which is longer")
    assert path.read_bytes() == b"the first, which is longer"
    assert list(tmp_path.iterdir()) == [path]


def test_a_command_says_that_it_closed_an_open_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    office = make_site(tmp_path, "north")
    for lines in (1, 0):
        office.folder.chmod(0o755 if lines else 0o700)
        prismfl("site", "egress", office.folder)
        assert capsys.readouterr().err.count("others could look into") == lines


def test_an_open_site_folder_is_closed_and_nothing_else(tmp_path: Path) -> None:
    office = make_site(open_root(tmp_path), "north")
    folder = office.folder
    (folder / "keys").mkdir()
    (folder / "keys" / "sign.key").write_text("x")
    (tmp_path / "elsewhere").write_text("not the site's")
    (folder / "egress").symlink_to(tmp_path)
    (folder / "notes.txt").write_text("the operator's own")
    for path, mode in ((folder, 0o755), (folder / "keys", 0o755), (folder / "keys" / "sign.key", 0o644)):
        path.chmod(mode)
    others = {p: p.stat().st_mode for p in (tmp_path, tmp_path / "elsewhere", folder / "notes.txt")}
    Office.open(folder)
    assert [p for p in (folder, folder / "keys", folder / "keys" / "sign.key") if p.stat().st_mode & 0o077] == []
    assert {p: p.stat().st_mode for p in others} == others
    assert close_site(folder) is None
    assert "others could look into" in (folder / "site.log").read_text()


def test_a_folder_that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o755)
    (tmp_path / "keys").chmod(0o755)
    prismfl("site", "outbox", open_root(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == (tmp_path / "keys").stat().st_mode & 0o777 == 0o755


def test_rotated_logs_are_closed_too_and_lines_stay_lines(tmp_path: Path) -> None:
    make_folder(tmp_path / "site", closed=True)
    handler = SiteLog(tmp_path / "site" / "site.log", maxBytes=200, backupCount=3)
    handler.setFormatter(OneLine("%(message)s"))
    log = logging.Logger("rotating")
    log.addHandler(handler)
    before = os.umask(0)
    try:
        for _ in range(20):
            log.error("run %s", "x\n2026-01-01 INFO all is well\x1b[2J")
        try:
            raise ValueError(SENTINEL)
        except ValueError:
            log.exception("failed")
    finally:
        os.umask(before)
        handler.close()
    files = sorted((tmp_path / "site").iterdir())
    assert len(files) == 4
    assert [p for p in files if p.stat().st_mode & 0o077] == []
    text = "".join(p.read_text() for p in files)
    assert "\x1b" not in text
    assert SENTINEL not in text
    assert all(line.startswith(("run x", "failed")) for line in text.splitlines())


# What logs say


def test_words_for_a_log_quote_no_cell() -> None:
    cell = CellError(
        f"Expected a number in column 'age', row 7, got '{SENTINEL}'.",
        without_values="Expected a number in column 'age', row 7.",
    )
    assert SENTINEL in str(cell)
    assert words_for_log(cell.within("a.csv")) == "a.csv: Expected a number in column 'age', row 7."
    assert words_for_log(BudgetError("The cap of 1 is reached.")) == "The cap of 1 is reached."
    assert words_for_log(UserError("a").within("b.csv")) == "b.csv: a"
    assert SENTINEL not in words_for_log(ValueError(SENTINEL))


@pytest.mark.parametrize("bad", ["age", "outcome"])
def test_a_bad_cell_is_not_in_the_log_of_the_site(tmp_path: Path, bad: str) -> None:
    """Through the real readers: a number that is none, a label that is no class."""
    schema = tmp_path / "schema.toml"
    column = 'name = "age"\ntype = "numeric"\nmin = 0\nmax = 120'
    schema.write_text(f'label = "outcome"\nclasses = ["no", "yes"]\ntrain_size = 40\n[[columns]]\n{column}\n')
    rows = [f"{20 + i},{'yes' if i % 2 else 'no'}" for i in range(40)]
    rows[6] = f"{SENTINEL},yes" if bad == "age" else f"30,{SENTINEL}"
    (tmp_path / "own.csv").write_text("age,outcome\n" + "\n".join(rows) + "\n")
    own = {"data": str(tmp_path / "own.csv"), "part": None, "parts": 1, "label": "outcome"}
    office = make_site(tmp_path, "north", **own)
    config = run_config(data="our-table", schema_file=str(schema), records=40)
    spec, words = declared(config)
    told = describe(config, spec, NAMES, schema=words)
    office.answer(Request("hello", told))
    ask(office, told)
    texts = {p.name: p.read_bytes() for p in office.folder.rglob("*") if p.is_file()}
    assert [name for name, raw in texts.items() if SENTINEL.encode() in raw and "ledger" not in name] == []


def test_of_a_foreign_exception_the_log_tells_type_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = make_site(tmp_path, "north")

    def broken(self: PrivateRecords, *args: object, **kwargs: object) -> None:
        raise RuntimeError(f"record 17: {SENTINEL}")

    monkeypatch.setattr(PrivateRecords, "noisy_gradient", broken)
    assert ask(office, description()).code == "refused"
    log = (office.folder / "site.log").read_text()
    assert SENTINEL not in log
    assert "RuntimeError in prismfl.methods.averaging.dp_fedavg, line" in log


# The ClientApp as Flower starts it, in a process whose output goes into supernode.log: a request on which the site's
# method fails; then exceptions that nobody catches, in the process, in a thread and in a finaliser.
CLIENT = """
import os, sys, threading

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from prismfl.core.door import PrivateRecords
from prismfl.transport.flower.adapter import request_record
from prismfl.transport.post import Request
from prismfl.errors import quiet_crashes
from prismfl.site.app import client_app
from prismfl.runs.description import job_of
from prismfl.core.payloads import encode
from prismfl.core.rounds import initial_state
from tests.site.test_office import description

quiet_crashes()
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def broken(self, *args, **kwargs):
    raise RuntimeError(sys.argv[1])


PrivateRecords.noisy_gradient = broken
told = description()
state = initial_state(job_of(told))
down = encode(state.items, {"round": 0})
message = Message(request_record(Request("round", told, 0, 60.0, down)), 1, "train.prismfl")
message.metadata.__dict__["_message_id"] = "one"
reply = client_app(message, Context(1, 1, {}, RecordDict(), {}))
print(reply.content)


class Late:
    def __del__(self):
        raise RuntimeError(sys.argv[1])


late = Late()
del late
thread = threading.Thread(target=broken, args=(None,))
thread.start()
thread.join()
broken(None)
"""


def test_nothing_of_an_exception_reaches_flowers_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = make_site(tmp_path, "north")
    monkeypatch.setenv("PRISMFL_SITE", str(office.folder))
    done = in_process(CLIENT, SENTINEL)
    assert done.returncode == 1
    assert "refused" in done.stdout
    assert done.stderr.count("prismfl: RuntimeError") == 3, done.stderr
    assert SENTINEL not in done.stdout + done.stderr
    assert SENTINEL not in (office.folder / "site.log").read_text()


@pytest.mark.parametrize("flags", ["a", "xb"])
def test_elsewhere_the_umask_decides(tmp_path: Path, flags: str) -> None:
    before = os.umask(0o022)
    try:
        with open(open_root(tmp_path) / "report.html", flags, opener=opener):
            pass
        make_folder(tmp_path / "runs" / "one")
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "runs" / "one").stat().st_mode & 0o777 == 0o755
