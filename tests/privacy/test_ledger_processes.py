"""The ledger among real processes: SIGKILL between spend and send, many at once, a file system that is full."""

import hashlib
import math
import subprocess
import sys
from pathlib import Path

import pytest

from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger import admission
from prismfl.privacy.ledger.admission import SCALE, Cap
from prismfl.privacy.ledger.book import Ledger

pytestmark = pytest.mark.processes

KILLS = 200
ROUNDS = 40
CAP = Cap(2.0, 1e-5)
ONE = Cost.gaussian(20.0)
RECORDS = [f"record {k}".encode() for k in range(100)]

HEAD = """
import os, random, signal, sys, time, traceback
from pathlib import Path
from prismfl.errors import BudgetError, LedgerError
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
path, folder = Path(sys.argv[1]), Path(sys.argv[1]).parent
CAP, ONE = Cap(2.0, 1e-5), Cost.gaussian(20.0)
RECORDS = [f"record {k}".encode() for k in range(100)]
"""

# A site that works through its runs: charge, then send (a line in a file), then confirm. Each life starts from the
# files alone, as after a power cut, and draws new noise for whatever the ledger does not hold.
SITE = (
    HEAD
    + """
import hashlib
ROUNDS = int(sys.argv[3])
told, tell = os.pipe()

def step():
    os.write(tell, b".")

def send(release, payload):
    line = f"{release} {hashlib.sha256(payload).hexdigest()}\\n".encode()
    with open(folder / "sent", "ab", buffering=0) as file:
        file.write(line)

def life(number):
    ledger = Ledger.open(path)
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    done = {charge.release: charge.confirmed for charge in ledger.charges()}
    while True:
        run = f"run{sum(entry.kind == 'close' for entry in ledger.history())}"
        ledger.reserve(run, data, Cost.gaussian(2000.0) * ROUNDS)
        for k in range(ROUNDS):
            release = f"{run}/{k}"
            if done.get(release):
                continue
            payload = ledger.outbox(release)
            if payload is None:
                payload = os.urandom(3000)
                step()
                ledger.release(run, data, release, Cost.gaussian(2000.0), payload)
            step()
            send(release, payload)
            step()
            ledger.confirm(release)
        ledger.close(run)

rng = random.Random(7)
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        try:
            life(number)
        except BaseException:
            traceback.print_exc()
        finally:
            os.write(tell, b"." * 10)
            os._exit(9)
    # Killed some steps into its life and a moment later: inside a commit, between spend and send, before the confirm.
    for _ in range(rng.randint(1, 6)):
        os.read(told, 1)
    time.sleep(rng.choice([0.0, 0.0, rng.uniform(0, 0.01)]))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the site ended by itself"
    os.set_blocking(told, False)
    try:
        os.read(told, 10_000)
    except BlockingIOError:
        pass
    os.set_blocking(told, True)
"""
)

RIVAL = (
    HEAD
    + """
name = sys.argv[2]
while not (folder / "go").exists():
    time.sleep(0.002)
ledger = Ledger.open(path)
data = ledger.dataset(f"name {name}", records=RECORDS, cap=CAP)
granted = 0
try:
    while True:
        ledger.reserve(f"{name}-{granted}", data, ONE)
        granted += 1
        ledger.release(f"{name}-{granted - 1}", data, f"{name}/{granted}", ONE, name.encode())
except BudgetError:
    sys.stdout.write(str(granted))
"""
)

FULL = (
    HEAD
    + """
import resource
ledger = Ledger.open(path)
data = ledger.dataset("a", records=RECORDS, cap=CAP)
ledger.reserve("r", data, ONE * 5)
ledger.release("r", data, "r/0", ONE, b"small")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = (folder / (path.name + "-wal")).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, resource.RLIM_INFINITY))
try:
    ledger.release("r", data, "r/1", ONE, os.urandom(200_000))
except LedgerError as error:
    sys.stdout.write("refused" if ledger.outbox("r/1") is None and ledger.spent(data) == ONE else "kept")
else:
    sys.stdout.write("sent")
"""
)


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output


def test_killed_between_spend_and_send(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    finish(start(SITE, path, KILLS, ROUNDS))
    with Ledger.open(path) as ledger:
        ledger.verify()
        charges = {charge.release: charge for charge in ledger.charges()}
        pending = {release: ledger.outbox(release) for release, charge in charges.items() if not charge.confirmed}
        kinds = [entry.kind for entry in ledger.history()]
    lines = [line.split() for line in (tmp_path / "sent").read_text().splitlines()]
    sent = [words for words in lines if len(words) == 2]  # a kill may tear a line of this list, and join it to the next
    assert len(sent) >= 0.9 * len(lines)
    hashes: dict[str, set[str]] = {}
    for release, digest in sent:
        hashes.setdefault(release, set()).add(digest)
    assert len(charges) > KILLS // 2, "the lives were too short to test anything"
    assert sum(release not in charges for release in hashes) == 0, "sent but unspent"
    assert all(len(digests) == 1 for digests in hashes.values()), "one release, two payloads"
    assert all(digests == {charges[release].digest} for release, digests in hashes.items())
    assert all(charge.release in hashes for charge in charges.values() if charge.confirmed)
    assert all(payload and hashlib.sha256(payload).hexdigest() == charges[r].digest for r, payload in pending.items())
    assert len(pending) <= 1
    # Some kills must have hit the window between spend and send or between send and confirm, else this test is idle.
    assert len(sent) > len(hashes) or pending
    assert kinds.count("release") == len(charges)


def test_eight_at_once_are_granted_exactly_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    need = [math.ceil(value * SCALE) for value in account.rdp_curve(ONE)]
    budget = max(admission.budget(CAP, k, delta) // need[k] for k, delta in admission.orders(CAP).items())
    rivals = [start(RIVAL, path, k) for k in range(8)]
    (tmp_path / "go").touch()
    granted = [int(finish(rival)) for rival in rivals]
    assert sum(granted) == budget > 50
    assert sum(count > 0 for count in granted) > 1, "one process took all: nothing ran at once"
    with Ledger.open(path) as ledger:
        ledger.verify()
        [status] = ledger.status()
        assert len(status.open_runs) == status.releases == budget
        assert len(status.names) == 8
        assert ledger.spent(status.dataset) == ONE * budget


def test_a_full_file_system_sends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    assert finish(start(FULL, path)) == "refused"
    with Ledger.open(path) as ledger:
        ledger.verify()
        [status] = ledger.status()
        assert ledger.spent(status.dataset) == ONE
        assert ledger.outbox("r/0") == b"small"
        assert ledger.outbox("r/1") is None


def test_a_server_that_asks_for_more_rounds_is_stopped_by_the_site(tmp_path: Path) -> None:
    more = HEAD + (
        "ledger = Ledger.open(path)\n"
        "data = ledger.dataset('a', records=RECORDS, cap=CAP)\n"
        "ledger.reserve('r', data, ONE * 3)\n"
        "for k in range(1003):\n"
        "    ledger.release('r', data, f'r/{k}', ONE, b'x')\n"
        "    (folder / 'sent').open('a').write('x')\n"
    )
    process = start(more, tmp_path / "site.ledger")
    _, errors = process.communicate(timeout=240)
    assert process.returncode != 0
    assert "BudgetError" in errors
    assert (tmp_path / "sent").read_text() == "xxx"
