"""The ledger in one process: admission, charges, outbox, identity of data, tampering. See test_ledger_processes."""

import math
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from prismfl.errors import BudgetError, LedgerError, UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import SCALE, Cap, budget, orders, units
from prismfl.privacy.ledger.book import Ledger

CAP = Cap(2.0, 1e-5)
ONE = Cost.gaussian(20.0)
RECORDS = [f"record {k}".encode() for k in range(100)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "site.ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        yield opened


def fits(plan: Cost, cap: Cap = CAP) -> int:
    """How often a plan fits under a cap, from the RDP curve alone: at the best order, room over rounded-up need."""
    offers, curve = [], account.rdp_curve(plan)
    for k, delta in orders(cap).items():
        room = math.floor(account.rdp_room(account.ORDERS[k], cap.epsilon, delta) * SCALE)
        offers.append(max(0, room) // math.ceil(curve[k] * SCALE))
    return max(offers)


def spend(ledger: Ledger, run: str, dataset: str, *, plan: Cost, releases: int = 1) -> None:
    ledger.reserve(run, dataset, plan * releases)
    for k in range(releases):
        ledger.release(run, dataset, f"{run}/{k}", plan, f"{run} {k}".encode())


# Admission


def test_exactly_the_budget_passes_and_one_step_more_does_not(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    n = fits(ONE)
    assert n > 10
    with pytest.raises(BudgetError, match="asks for epsilon"):
        ledger.reserve("too long", data, ONE * 10 * n)
    ledger.reserve("all", data, ONE * n)
    with pytest.raises(BudgetError, match=f"run 'one more'.*data set {data}.*cap of epsilon 2 at delta 1e-05"):
        ledger.reserve("one more", data, ONE)
    assert [run for status in ledger.status() for run in status.open_runs] == ["all"]


def test_many_runs_add_up_in_integers(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    n = fits(ONE)
    for k in range(n):
        ledger.reserve(f"run {k}", data, ONE)
    with pytest.raises(BudgetError):
        ledger.reserve("last", data, ONE)
    [status] = ledger.status()
    assert status.used is not None
    assert 1 - 1 / n < status.used <= 1


def test_units_are_whole_and_never_below_the_truth() -> None:
    for noise in (3.0, 7.0, 20.0, 1e4):
        one, many = units(Cost.gaussian(noise)), units(Cost.gaussian(noise, times=10**9))
        for order, unit, sum_ in zip(account.ORDERS, one, many, strict=True):
            truth = Fraction(order) / (2 * Fraction(noise) ** 2) * SCALE
            assert truth <= unit <= truth * (1 + Fraction(1, 10**11)) + 2
            assert sum_ == 10**9 * unit
    for k, order in enumerate(account.ORDERS):
        assert budget(CAP, k) <= max(0.0, account.rdp_room(order, CAP.epsilon, CAP.delta)) * SCALE
    assert units(Cost.parallel([ONE, ONE * 3, ONE * 2])) == units(ONE * 3)


def test_the_database_is_set_to_survive_a_power_cut(ledger: Ledger) -> None:
    assert ledger._chain.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ledger._chain.db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_what_the_filter_admits_is_within_the_cap_by_the_accountant(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    rng = random.Random(3)
    total = Cost.zero()
    for k in range(300):
        plan = Cost.gaussian(rng.choice([8.0, 15.0, 40.0]), times=rng.randint(1, 3))
        try:
            ledger.reserve(str(k), data, plan)
        except BudgetError:
            continue
        total += plan
    assert 0.8 * CAP.epsilon < account.epsilon_rdp(total, CAP.delta) <= CAP.epsilon


def test_a_plan_declared_in_advance_may_use_the_tight_bound_once(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    sigma = account.calibrate(lambda s: Cost.gaussian(s, times=10), CAP.epsilon, CAP.delta)
    plan = Cost.gaussian(sigma, times=10)
    assert account.epsilon_rdp(plan, CAP.delta) > CAP.epsilon
    with pytest.raises(BudgetError):
        ledger.reserve("too much", data, Cost.gaussian(sigma * 0.97, times=10))
    ledger.reserve("first", data, plan)
    # A stand-in with less RDP than the plan is no part of it: the tight bound was computed for the plan.
    with pytest.raises(BudgetError, match="its plan is"):
        ledger.release("first", data, "other", Cost.gaussian(2 * sigma), b"x")
    ledger.release("first", data, "part", Cost.gaussian(sigma), b"x")
    ledger.close("first")
    for later in (Cost.gaussian(1000.0), plan):
        with pytest.raises(BudgetError):
            ledger.reserve("second", data, later)


def test_the_tight_bound_is_for_untouched_data(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    sigma = account.calibrate(lambda s: Cost.gaussian(s, times=10), CAP.epsilon, CAP.delta)
    plan = Cost.gaussian(sigma, times=10)
    ledger.reserve("stopped before it began", data, plan)
    with pytest.raises(BudgetError):
        ledger.reserve("again", data, plan)
    ledger.close("stopped before it began")
    ledger.reserve("again", data, plan)
    ledger.close("again")
    spend(ledger, "small", data, plan=Cost.gaussian(200.0))
    ledger.close("small")
    with pytest.raises(BudgetError):
        ledger.reserve("once more", data, plan)


def test_open_runs_hold_their_plan_and_closed_ones_what_they_released(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    n = fits(ONE)
    ledger.reserve("long", data, ONE * n)
    ledger.release("long", data, "r", ONE, b"x")
    with pytest.raises(BudgetError):
        ledger.reserve("next", data, ONE)
    ledger.close("long")
    ledger.reserve("next", data, ONE * (n - 1))
    with pytest.raises(BudgetError):
        ledger.reserve("after", data, ONE)


def test_unit_relation_and_guarantee_must_be_the_caps(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    for plan in (Cost.gaussian(20.0, unit="client"), Cost.gaussian(20.0, relation="replace-one")):
        with pytest.raises(BudgetError, match="cannot be paid from a cap per record"):
            ledger.reserve("r", data, plan)
    with pytest.raises(BudgetError, match="no DP guarantee"):
        ledger.reserve("r", data, Cost.non_private())
    assert [entry.kind for entry in ledger.history()] == ["create", "dataset"]


def test_without_a_cap_everything_is_recorded(ledger: Ledger) -> None:
    data = ledger.dataset("free", records=RECORDS)
    spend(ledger, "open", data, plan=Cost.non_private())
    ledger.close("open")
    assert not ledger.spent(data).private
    ledger.set_cap(data, CAP)
    with pytest.raises(BudgetError, match="has all spent"):
        ledger.reserve("later", data, ONE)
    with pytest.raises(BudgetError, match="per client"):
        ledger.set_cap(data, Cap(1.0, 1e-5, unit="client"))


@pytest.mark.parametrize("epsilon", [0, 0.0, -1, math.nan, math.inf, 5e-324, True, "1"])
def test_caps_of_no_sense_are_refused(epsilon: float) -> None:
    with pytest.raises(UserError, match="epsilon"):
        Cap(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, -1e-5, math.nan, math.inf, 5e-324, 1, 1.0, 2])
def test_deltas_of_no_sense_are_refused(delta: float) -> None:
    with pytest.raises(UserError, match="delta"):
        Cap(1.0, delta)


@pytest.mark.parametrize("noise", [5e-324, 1e-9])
def test_almost_no_noise_is_no_bargain(ledger: Ledger, noise: float) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=Cap(1e6, 1e-5))
    for plan in (Cost.gaussian(noise), Cost.laplace(noise), Cost.gaussian(noise, 1e-3)):
        with pytest.raises(BudgetError):
            ledger.reserve("r", data, plan)


def test_no_use_is_free_however_small(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    with pytest.raises(BudgetError):
        ledger.reserve("r", data, Cost.laplace(1e300, times=10**15))


# Releases


def test_charges_stay_within_the_plan(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    spend(ledger, "r", data, plan=ONE, releases=3)
    for cost in (ONE, Cost.gaussian(1e6), Cost.non_private()):
        with pytest.raises(BudgetError, match="its plan is 3 x"):
            ledger.release("r", data, "more", cost, b"y")
    with pytest.raises(BudgetError, match="per record"):
        ledger.release("r", data, "more", Cost.gaussian(20.0, unit="client"), b"y")
    assert ledger.outbox("more") is None
    assert ledger.spent(data) == ONE * 3
    ledger.release("r", data, "free", Cost.zero(), b"no cost")


def test_another_mechanism_may_replace_a_dearer_one(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 3)
    ledger.release("r", data, "r/0", Cost.gaussian(40.0), b"x")
    ledger.release("r", data, "r/1", ONE * 2, b"x")
    with pytest.raises(BudgetError):
        ledger.release("r", data, "r/2", ONE, b"x")


def test_a_release_needs_an_open_reservation(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    with pytest.raises(BudgetError, match="reserve its plan first"):
        ledger.release("r", data, "r/0", ONE, b"x")
    ledger.reserve("r", data, ONE * 2)
    ledger.release("r", data, "r/0", ONE, b"x")
    ledger.close("r")
    ledger.reserve("r", data, ONE * 2)
    ledger.release("r", data, "r/0", ONE, b"x")
    with pytest.raises(BudgetError, match="closed"):
        ledger.release("r", data, "r/1", ONE, b"x")
    with pytest.raises(UserError, match="another plan"):
        ledger.reserve("r", data, ONE * 3)
    with pytest.raises(UserError, match="No data set 'b'"):
        ledger.reserve("r", "b", ONE)
    with pytest.raises(UserError, match="No run 'x'"):
        ledger.close("x")


def test_a_resend_is_free_and_other_bytes_are_refused(ledger: Ledger, path: Path) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 5)
    payload = os.urandom(5000)
    ledger.release("r", data, "r/0", ONE, payload)
    ledger.release("r", data, "r/0", ONE, payload)
    for cost, content in ((ONE, b"other"), (ONE * 2, payload)):
        with pytest.raises(BudgetError, match="other content"):
            ledger.release("r", data, "r/0", cost, content)
    with Ledger.open(path) as again:
        assert again.outbox("r/0") == payload
    assert ledger.spent(data) == ONE
    ledger.confirm("r/0")
    ledger.confirm("r/0")
    assert ledger.outbox("r/0") is None
    [charge] = ledger.charges()
    assert charge.confirmed
    assert charge.size == 5000
    with pytest.raises(BudgetError, match="other content"):
        ledger.release("r", data, "r/0", ONE, b"other")
    with pytest.raises(UserError, match="No release"):
        ledger.confirm("r/9")


def test_a_release_confirms_earlier_ones_in_passing(ledger: Ledger, path: Path) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 5)
    ledger.release("r", data, "r/0", ONE, b"0")
    ledger.release("r", data, "r/1", ONE, b"1", arrived=["r/0"])
    with pytest.raises(UserError, match="No release 'r/9'"):
        ledger.release("r", data, "r/2", ONE, b"2", arrived=["r/1", "r/9"])
    entries = ledger.verify()
    ledger.confirm("r/0")
    assert ledger.verify() == entries
    with Ledger.open(path) as again:
        assert [(charge.release, charge.confirmed) for charge in again.charges()] == [("r/0", True), ("r/1", False)]
        assert (again.outbox("r/0"), again.outbox("r/1")) == (None, b"1")
        assert again.spent(data) == ONE * 2


def test_reading_back(ledger: Ledger) -> None:
    a = ledger.dataset("a", records=RECORDS, cap=CAP)
    b = ledger.dataset("b", records=[b"other"])
    spend(ledger, "one", a, plan=ONE, releases=2)
    spend(ledger, "two", a, plan=Cost.gaussian(30.0))
    spend(ledger, "three", b, plan=Cost.parallel([ONE, Cost.gaussian(50.0)]))
    spend(ledger, "four", b, plan=Cost.parallel([ONE] * 3))
    assert [charge.release for charge in ledger.charges()] == ["one/0", "one/1", "two/0", "three/0", "four/0"]
    assert [charge.release for charge in ledger.charges(run="one")] == ["one/0", "one/1"]
    assert [charge.release for charge in ledger.charges(dataset=b)] == ["three/0", "four/0"]
    assert ledger.spent(a) == ONE * 2 + Cost.gaussian(30.0)
    assert ledger.spent(b) == ONE * 2
    ledger.confirm("one/0")
    ledger.close("two")
    first, second = ledger.status()
    assert (first.names, first.records, first.releases, first.unconfirmed) == (("a",), 100, 3, 2)
    assert (first.open_runs, first.closed_runs, first.cap) == (("one",), ("two",), CAP)
    assert second.used is None
    assert ledger.verify() == len(ledger.history()) == 14


# The same data again


@pytest.mark.parametrize(
    "again",
    [
        RECORDS[::-1],
        [*RECORDS, b"one row more"],
        RECORDS[1:],
        [RECORDS[7], b"x", b"y"],
    ],
    ids=["order", "row more", "row less", "one shared"],
)
def test_the_same_data_has_the_same_budget(path: Path, again: list[bytes]) -> None:
    with Ledger.open(path) as ledger:
        first = ledger.dataset("a", records=RECORDS, cap=CAP)
        spend(ledger, "r", first, plan=ONE * fits(ONE))
    with Ledger.open(path) as ledger:
        same = ledger.dataset("another name", records=again, cap=CAP)
        assert same == first
        with pytest.raises(BudgetError):
            ledger.reserve("fresh", same, ONE)
        # Records that came in under the second name are known from now on.
        assert ledger.dataset("third", records=again[-1:]) == first
        other = ledger.dataset("other data", records=[b"something else"], cap=CAP)
        assert other != first
        ledger.reserve("fresh", other, ONE)


def test_the_same_name_is_the_same_data(ledger: Ledger) -> None:
    first = ledger.dataset("a", records=RECORDS, cap=CAP)
    assert ledger.dataset("a", records=[b"all new"]) == first
    assert ledger.dataset("b", records=[b"all new"]) == first


def test_data_that_bridges_two_sets_makes_them_one(ledger: Ledger, path: Path) -> None:
    a = ledger.dataset("a", records=RECORDS[:50], cap=Cap(4.0, 1e-5))
    b = ledger.dataset("b", records=RECORDS[50:], cap=CAP)
    assert a != b
    for data in (a, b):
        ledger.reserve(f"r{data}", data, ONE * (fits(ONE) // 2))
        ledger.release(f"r{data}", data, f"{data}/0", ONE, b"x")
    both = ledger.dataset("all", records=RECORDS)
    [status] = ledger.status()
    assert (status.cap, status.records, status.names) == (CAP, 100, ("a", "b", "all"))
    assert ledger.spent(both) == ledger.spent(a) == ledger.spent(b) == ONE * 2
    with pytest.raises(BudgetError):
        ledger.reserve("r", both, ONE * (fits(ONE) // 2))
    ledger.release(f"r{b}", b, f"{b}/1", ONE, b"x")
    with Ledger.open(path) as again:
        assert again.verify()
        assert again.spent(b) == ONE * 3


def test_a_cap_changes_only_on_the_record(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    with pytest.raises(UserError, match=r"known to the ledger with a cap of epsilon 2 .* not a cap of epsilon 9"):
        ledger.dataset("b", records=RECORDS, cap=Cap(9.0, 1e-5))
    assert ledger.dataset("a", records=RECORDS) == data
    assert ledger.status()[0].cap == CAP
    ledger.set_cap(data, Cap(9.0, 1e-5))
    assert ledger.dataset("a", records=RECORDS, cap=Cap(9.0, 1e-5)) == data
    assert [entry.kind for entry in ledger.history()] == ["create", "dataset", "cap"]


def test_fingerprints_are_keyed_and_records_are_not_kept(tmp_path: Path) -> None:
    blobs = []
    for name in ("one", "two"):
        with Ledger.open(tmp_path / name) as ledger:
            ledger.dataset("a", records=[b"a very private record", *RECORDS])
        with sqlite3.connect(tmp_path / name) as db:
            blobs.append(db.execute("SELECT data FROM blobs").fetchone()[0])
        assert b"very private" not in (tmp_path / name).read_bytes()
    assert len(blobs[0]) == len(blobs[1]) == 8 * 101
    assert blobs[0] != blobs[1]


def test_sixty_thousand_records_take_seconds(ledger: Ledger) -> None:
    records = [random.Random(1).randbytes(784 + k % 2) + k.to_bytes(4, "big") for k in range(1000)] * 60
    records = [record + (k // 1000).to_bytes(2, "big") for k, record in enumerate(records)]
    start = time.process_time()
    ledger.dataset("a", records=records)
    assert ledger.status()[0].records == 60_000
    assert time.process_time() - start < 20  # about one; comparing all with all would take many minutes


# Damage


def filled(path: Path) -> str:
    with Ledger.open(path) as ledger:
        data = ledger.dataset("a", records=RECORDS, cap=CAP)
        spend(ledger, "r", data, plan=ONE, releases=5)
        ledger.confirm("r/0")
    return data


def parts(path: Path) -> list[Path]:
    return [part for part in sorted(path.parent.iterdir()) if part.name.startswith(path.name)]


def test_a_deleted_ledger_is_no_fresh_budget(path: Path) -> None:
    filled(path)
    path.unlink()
    for create in (True, False):
        with pytest.raises(LedgerError, match="missing although its anchor exists"):
            Ledger.open(path, create=create)
    assert not path.exists()
    path.touch()
    with pytest.raises(LedgerError):
        Ledger.open(path)


def test_a_deleted_anchor_is_noticed(path: Path) -> None:
    filled(path)
    Path(f"{path}.anchor").unlink()
    with pytest.raises(LedgerError, match=r"anchor .* is missing"):
        Ledger.open(path)


def test_an_older_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    data = filled(path)
    old = tmp_path / "old"
    shutil.copy(path, old)
    with Ledger.open(path) as ledger:
        spend(ledger, "later", data, plan=ONE)
    for part in parts(path):
        if not part.name.endswith(".anchor"):
            part.unlink()
    shutil.copy(old, path)
    with pytest.raises(LedgerError, match="older than its anchor"):
        Ledger.open(path)


def test_an_older_ledger_under_a_running_process_is_refused(path: Path, ledger: Ledger) -> None:
    data = filled(path)
    Path(f"{path}.anchor").write_text(Path(f"{path}.anchor").read_text().replace('"seq": 9', '"seq": 99'))
    with pytest.raises(LedgerError, match="older than its anchor"):
        ledger.reserve("r2", data, ONE)


def test_another_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    filled(path)
    other = tmp_path / "elsewhere" / path.name
    with Ledger.open(other) as ledger:
        data = ledger.dataset("a", records=RECORDS)
        spend(ledger, "r", data, plan=ONE, releases=20)
    shutil.copy(other, path)
    with pytest.raises(LedgerError, match="not the one its anchor belongs to"):
        Ledger.open(path)


def test_a_ledger_ahead_of_its_anchor_is_a_crash_and_fine(path: Path) -> None:
    data = filled(path)
    anchor = Path(f"{path}.anchor")
    before = anchor.read_text()
    with Ledger.open(path) as ledger:
        spend(ledger, "later", data, plan=ONE)
    after = anchor.read_text()
    anchor.write_text(before)
    with Ledger.open(path) as ledger:
        assert ledger.spent(data) == ONE * 6
    assert anchor.read_text() == after


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = replace(body, '20.0', '99.0') WHERE kind = 'release' AND seq = 5",
        "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE kind = 'dataset'",
        "UPDATE entries SET time = '2000-01-01' WHERE seq = 4",
        "UPDATE entries SET kind = 'confirm' WHERE seq = 5",
        "DELETE FROM entries WHERE seq = 5",
        "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)",
        "DELETE FROM entries",
        "INSERT INTO entries SELECT max(seq) + 1, time, 'close', '{\"run\": \"r\"}', head FROM entries",
        "UPDATE meta SET value = randomblob(32)",
        "DELETE FROM meta",
        "DROP TABLE entries",
    ],
)
def test_an_edited_row_is_noticed_on_opening(path: Path, statement: str) -> None:
    filled(path)
    with sqlite3.connect(path) as db:
        assert db.execute(statement).rowcount != 0
    db.close()
    with pytest.raises(LedgerError):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("statement", "use"),
    [
        ("UPDATE blobs SET data = x'00' WHERE name = 'payload/r/1'", lambda ledger: ledger.outbox("r/1")),
        ("DELETE FROM blobs WHERE name = 'payload/r/1'", lambda ledger: ledger.outbox("r/1")),
        ("DELETE FROM blobs WHERE name = 'records/ds1'", lambda ledger: ledger.dataset("z", records=RECORDS, cap=CAP)),
        (
            "UPDATE blobs SET data = x'00' WHERE name = 'records/ds1'",
            lambda ledger: ledger.dataset("z", records=[b"z"]),
        ),
    ],
)
def test_an_edited_blob_is_noticed_on_use(path: Path, statement: str, use: Callable[[Ledger], object]) -> None:
    filled(path)
    with sqlite3.connect(path) as db:
        assert db.execute(statement).rowcount == 1
    db.close()
    with Ledger.open(path) as ledger:
        with pytest.raises(LedgerError, match="does not verify"):
            use(ledger)
        with pytest.raises(LedgerError, match="does not verify"):
            ledger.verify()


def test_no_flipped_byte_gives_budget_back(path: Path) -> None:
    data = filled(path)
    good = path.read_bytes()
    caught = 0
    rng = random.Random(5)
    offsets = sorted([*rng.sample(range(len(good)), 150), 0, 18, 24, 28, 100])
    for offset in offsets:
        path.write_bytes(good[:offset] + bytes([good[offset] ^ rng.randint(1, 255)]) + good[offset + 1 :])
        for side in ("-wal", "-shm"):
            Path(f"{path}{side}").unlink(missing_ok=True)
        try:
            with Ledger.open(path) as ledger:
                ledger.verify()
                assert ledger.spent(data) == ONE * 5, offset
                assert ledger.dataset("z", records=RECORDS) == data
        except LedgerError:
            caught += 1
            continue
        path.write_bytes(good)
        Path(f"{path}.anchor").write_text(_anchor_of(path))
    # The rest of the file is unused space inside pages.
    assert caught > 20


def _anchor_of(path: Path) -> str:
    """The anchor that belongs to the state in the file: the test above adds a name when nothing was damaged."""
    with sqlite3.connect(path) as db:
        seq, head = db.execute("SELECT seq, head FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    db.close()
    return f'{{"version": 1, "seq": {seq}, "head": "{head.hex()}"}}\n'


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"seq": 0, "head": ""}', '{"seq": "9", "head": "00"}', "\xff"])
def test_a_damaged_anchor_is_refused(path: Path, content: str) -> None:
    filled(path)
    Path(f"{path}.anchor").write_text(content, encoding="latin-1")
    with pytest.raises(LedgerError, match="anchor"):
        Ledger.open(path)


def test_a_file_that_is_no_ledger_is_left_alone(path: Path) -> None:
    path.write_bytes(b"these are my notes, not a database" * 100)
    with pytest.raises(LedgerError, match="file is not a database"):
        Ledger.open(path)
    assert path.read_bytes().startswith(b"these are my notes")
    with pytest.raises(UserError, match="No ledger at"):
        Ledger.open(path.with_name("none"), create=False)


# Commits that fail


def test_a_full_file_charges_and_keeps_nothing(path: Path, ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 5)
    ledger.release("r", data, "r/0", ONE, b"x")
    pages = ledger._chain.db.execute("PRAGMA page_count").fetchone()[0]
    ledger._chain.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(LedgerError, match="full"):
        ledger.release("r", data, "r/1", ONE, os.urandom(100_000))
    assert ledger.outbox("r/1") is None
    assert ledger.spent(data) == ONE
    ledger._chain.db.execute("PRAGMA max_page_count = 100000")
    ledger.release("r", data, "r/1", ONE, b"y")
    assert ledger.verify() == 5


@pytest.mark.parametrize("table", ["entries", "blobs"])
def test_charge_and_payload_stand_or_fall_together(path: Path, ledger: Ledger, table: str) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 5)
    ledger._chain.db.execute(f"CREATE TEMP TRIGGER no BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(LedgerError):
        ledger.release("r", data, "r/0", ONE, b"x")
    ledger._chain.db.execute("DROP TRIGGER no")
    assert ledger.outbox("r/0") is None
    assert ledger._chain.db.execute("SELECT count(*) FROM blobs WHERE name LIKE 'payload%'").fetchone() == (0,)
    assert ledger.spent(data).is_zero
    assert ledger.verify() == 3


def test_a_read_only_ledger_sends_nothing(path: Path, ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 5)
    ledger._chain.db.execute("PRAGMA query_only = ON")
    with pytest.raises(LedgerError, match="readonly"):
        ledger.release("r", data, "r/0", ONE, b"x")
    assert ledger.outbox("r/0") is None


def test_an_anchor_that_cannot_be_written_stops_the_sending_but_not_the_charge(path: Path, ledger: Ledger) -> None:
    data = ledger.dataset("a", records=RECORDS, cap=CAP)
    ledger.reserve("r", data, ONE * 5)
    draft = Path(f"{path}.anchor.new")
    draft.mkdir()
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.release("r", data, "r/0", ONE, b"x")
    draft.rmdir()
    assert ledger.spent(data) == ONE
    ledger.release("r", data, "r/0", ONE, b"x")
    assert ledger.spent(data) == ONE
    assert '"seq": 4' in Path(f"{path}.anchor").read_text()


def test_files_are_for_the_owner_alone(path: Path) -> None:
    filled(path)
    assert {part.stat().st_mode & 0o777 for part in parts(path)} == {0o600}


def test_errors_carry_no_record(ledger: Ledger) -> None:
    data = ledger.dataset("a", records=[b"Jane Doe, HIV positive"], cap=CAP)
    texts = []
    ledger.reserve("r", data, ONE)
    ledger.release("r", data, "r/0", ONE, b"secret payload")
    for call in (
        lambda: ledger.release("r", data, "r/0", ONE, b"secret payload 2"),
        lambda: ledger.release("r", data, "r/1", ONE, b"secret payload 2"),
        lambda: ledger.dataset("b", records=[b"Jane Doe, HIV positive"], cap=Cap(1.0, 1e-5)),
    ):
        with pytest.raises((BudgetError, UserError)) as caught:
            call()
        texts.append(str(caught.value))
    assert not any("Jane" in text or "secret" in text for text in texts)
    assert all("\n" not in text for text in texts)
