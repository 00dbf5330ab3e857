"""`prismfl ledger`: what the user's ledger shows, and its caps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.privacy.ledger.place import ledger_path
from tests.cli.command import Done, invoke

ONE = Cost.gaussian(5.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRISMFL_LEDGER", str(tmp_path / "books"))
    return tmp_path


def filled() -> Path:
    with Ledger.open(ledger_path()) as ledger:
        data = ledger.dataset("patients", records=[b"1", b"2", b"3"], cap=Cap(3.0, 1e-6))
        for run in ("first", "second"):
            ledger.reserve(run, data, ONE * 2)
            ledger.release(run, data, run, ONE, b"x")
        ledger.close("first")
        other = ledger.dataset("open", records=[b"9"])
        ledger.reserve("all", other, Cost.non_private())
        ledger.release("all", other, "all", Cost.non_private(), b"x")
        return ledger.path


def shown(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_before_the_first_run_nothing_is_made(home: Path) -> None:
    done = invoke("ledger", "--format", "json", cwd=home)
    assert shown(done) == {"ledger": str(home / "books" / "ledger.sqlite"), "data sets": []}
    assert "nothing was spent yet" in done.stderr
    assert list(home.iterdir()) == []


def test_the_total_over_all_runs_is_shown(home: Path) -> None:
    path = filled()
    found = shown(invoke("ledger", "--format", "json", cwd=home))
    assert found["ledger"] == str(path)
    patients, free = found["data sets"]
    assert patients["epsilon spent"] == [account.epsilon(ONE * 2, 1e-6)]
    assert (patients["id"], patients["names"], patients["records"], patients["cap"]) == ("ds1", ["patients"], 3, 3.0)
    assert (patients["delta"], patients["runs"], patients["open runs"], patients["releases"]) == (
        1e-6,
        2,
        ["second"],
        2,
    )
    assert patients["unit"] == "record (add-remove)"
    assert 0 < patients["budget held"] < 1
    assert (free["epsilon spent"], free["cap"], free["delta"]) == ([None], None, 1e-5)
    text = invoke("ledger", cwd=home).stdout
    assert "patients" in text
    assert "∞" in text
    for command in ("status", "verify", "history"):
        assert shown(invoke("ledger", command, "--format", "json", cwd=home))


def test_another_ledger_is_shown_by_its_path(home: Path) -> None:
    with Ledger.open(home / "other.sqlite") as ledger:
        ledger.dataset("other", records=[b"1"])
    [row] = shown(invoke("ledger", "--path", str(home / "other.sqlite"), "--format", "json", cwd=home))["data sets"]
    assert row["names"] == ["other"]
    assert row["epsilon spent"] == [0.0]
    done = invoke("ledger", "--path", str(home / "none.sqlite"), cwd=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "No ledger at" in done.stderr


@pytest.mark.parametrize("name", ["ds1", "patients"])
def test_a_cap_is_set_on_the_record(home: Path, name: str) -> None:
    path = filled()
    assert shown(invoke("ledger", "cap", name, "4.5", "--format", "json", cwd=home))["cap"] == 4.5
    found = shown(invoke("ledger", "cap", name, "5", "--delta", "1e-7", "--format", "json", cwd=home))
    assert (found["cap"], found["delta"]) == (5.0, 1e-7)
    with Ledger.open(path) as ledger:
        assert ledger.status()[0].cap == Cap(5.0, 1e-7)
        assert [entry.body["cap"]["delta"] for entry in ledger.history() if entry.kind == "cap"] == [1e-6, 1e-7]


def test_the_first_cap_has_the_unit_that_was_spent(home: Path) -> None:
    with Ledger.open(ledger_path()) as ledger:
        data = ledger.dataset("a", records=[b"1"])
        plan = Cost.gaussian(5.0, unit="patient", relation="replace-one")
        ledger.reserve("r", data, plan)
        ledger.release("r", data, "r", plan, b"x")
    shown(invoke("ledger", "cap", "a", "2", "--format", "json", cwd=home))
    with Ledger.open(ledger_path()) as ledger:
        assert ledger.status()[0].cap == Cap(2.0, 1e-5, "patient", "replace-one")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nobody", "2"], "No data set 'nobody' in the ledger (known: ds1 (patients), ds2 (open))"),
        (["ds1", "0"], "finite epsilon"),
        (["ds1", "nan"], "finite epsilon"),
        (["ds1", "inf"], "finite epsilon"),
        (["ds1", "1", "--delta", "1"], "delta < 1"),
        (["ds1", "much"], "much"),
    ],
)
def test_caps_of_no_sense_are_refused_in_one_line(home: Path, args: list[str], text: str) -> None:
    path = filled()
    done = invoke("ledger", "cap", *args, cwd=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    with Ledger.open(path) as ledger:
        assert ledger.status()[0].cap == Cap(3.0, 1e-6)


def test_a_lost_ledger_is_no_empty_one(home: Path) -> None:
    filled().unlink()
    done = invoke("ledger", cwd=home)
    assert done.returncode != 0
    assert "missing although its anchor exists" in done.stderr


def test_a_run_that_was_given_up_can_be_closed(home: Path) -> None:
    filled()
    assert invoke("ledger", "close", "sec", cwd=home).returncode == 0
    with Ledger.open(ledger_path()) as ledger:
        assert ledger.status()[0].open_runs == ()
    again = invoke("ledger", "close", "sec", cwd=home)
    assert (again.returncode, "found 0" in again.stderr) == (2, True)


def test_seeded_releases_are_marked(home: Path) -> None:
    filled()
    with Ledger.open(ledger_path()) as ledger:
        data = ledger.dataset("trial", records=[b"7"])
        ledger.reserve("seeded", data, ONE)
        ledger.charge("seeded", data, "seeded/a/0", ONE, noise="seeded: simulation only")
    for command in ([], ["status"], ["history"]):
        done = invoke("ledger", *command, cwd=home, env={"COLUMNS": "250"})
        marked = [line for line in done.stdout.splitlines() if "simulation: no protection" in line]
        assert len(marked) == 1, command


def test_ledger_commands(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    for command in ("status", "verify", "history"):
        done = invoke("ledger", command, result["run_dir"], "--format", "json", cwd=cwd)
        assert done.returncode == 0, done.stderr
    rows = json.loads(invoke("ledger", "status", result["run_dir"], "--format", "json", cwd=cwd).stdout)
    spent = [row["epsilon spent"].partition(" ") for row in rows]
    assert [float(number) for number, _, _ in spent] == pytest.approx([result["epsilon"]], rel=1e-3), (
        "all sites are parts of one"
    )
    assert {words for _, _, words in spent} == {"(simulation: no protection)"}


def test_a_ledger_is_backed_up_restored_moved_and_exported(tmp_path: Path) -> None:
    """The verbs, as docs/how-to/back-up-a-ledger.md has them; what they may not do is in tests/privacy/test_care.py."""
    home, env = tmp_path / "home", {"PRISMFL_LEDGER": str(tmp_path / "home")}
    with Ledger.open(home / "ledger.sqlite") as ledger:
        ledger.dataset("patients", records=[b"1"], cap=Cap(2.0, 1e-5))

    def prismfl(*args: str | Path, code: int = 0) -> Done:
        done = invoke("ledger", *args, cwd=tmp_path, env=env)
        assert done.returncode == code, done.stderr
        return done

    assert "is kept at" in prismfl("head", tmp_path / "elsewhere").stderr
    prismfl("backup", "copy")
    assert "exists already" in prismfl("backup", "copy", code=2).stderr
    prismfl("cap", "ds1", "3")
    (home / "ledger.sqlite").unlink()
    assert "older than the head that is kept (3 of 4 entries)" in prismfl("restore", "copy", code=3).stderr
    assert "prismfl ledger cap" in prismfl("restore", "copy", "--lost").stderr
    prismfl("move", "stick")
    there = tmp_path / "there" / "ledger.sqlite"
    prismfl("restore", "stick", "--path", there)
    written = prismfl("export", "-o", "out", "--year", str(datetime.now(UTC).year), "--path", there).stdout.splitlines()
    assert "signed by this key" in prismfl("check", written[0], "--key", there.with_name("export.pub")).stderr
