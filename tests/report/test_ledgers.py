"""Ledgers as rows for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismfl.errors import UserError
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.privacy.ledger.admission import Cap
from prismfl.privacy.ledger.book import Ledger
from prismfl.report.ledgers import history_rows, ledger_files, status_rows, verify_rows
from prismfl.report.words import NO_PROTECTION
from prismfl.sources import DEPLOYMENT, SIMULATION

COST = Cost.gaussian(5.0)


def book(path: Path, *, cap: float | None = 10.0, noise: str = DEPLOYMENT, run: str = "run-1") -> Path:
    """A ledger with one data set, a plan of two releases and one of them charged."""
    with Ledger.open(path) as ledger:
        data = ledger.dataset("hearts", records=[b"a", b"b"], cap=None if cap is None else Cap(cap, 1e-5))
        ledger.reserve(run, data, COST * 2)
        ledger.charge(run, data, f"{run}/0", COST, noise=noise)
        ledger.fill(f"{run}/0", b"content")
    return path


def test_a_row_says_what_was_spent_of_what(tmp_path: Path) -> None:
    (row,) = status_rows(book(tmp_path / "north.sqlite"))
    assert (row["ledger"], row["data set"], row["releases"]) == ("north", "hearts", 1)
    assert row["epsilon spent"] == f"{account.epsilon(COST, 1e-5):.4g}"
    assert (row["delta"], row["unit"], row["cap"]) == ("1e-05", "record", "10")
    assert 0.0 < float(row["budget held"].removesuffix(" %")) <= 100.0


def test_without_a_cap_nothing_is_held(tmp_path: Path) -> None:
    (row,) = status_rows(book(tmp_path / "north.sqlite", cap=None))
    assert (row["cap"], row["budget held"]) == ("none", "-")


def test_no_guarantee_is_infinity_never_a_blank(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.sqlite") as ledger:
        data = ledger.dataset("hearts", records=[b"a"])
        ledger.reserve("r", data, Cost.non_private())
        ledger.charge("r", data, "r/0", Cost.non_private(), noise=DEPLOYMENT)
        ledger.fill("r/0", b"content")
    (row,) = status_rows(tmp_path / "a.sqlite")
    assert row["epsilon spent"] == "∞ (no DP guarantee)"


@pytest.mark.parametrize(("noise", "simulation"), [(SIMULATION, False), (DEPLOYMENT, True)])
def test_seeded_noise_is_marked(noise: str, simulation: bool, tmp_path: Path) -> None:
    path = book(tmp_path / "a.sqlite", cap=None, noise=noise)
    (row,) = status_rows(path, simulation=simulation)
    assert row["epsilon spent"].endswith(f"({NO_PROTECTION})")


def test_only_the_data_sets_of_a_run(tmp_path: Path) -> None:
    book(tmp_path / "a.sqlite", run="one")
    book(tmp_path / "b.sqlite", run="two")
    assert [row["ledger"] for row in status_rows(tmp_path)] == ["a", "b"]
    assert [row["ledger"] for row in status_rows(tmp_path, run="two")] == ["b"]
    assert [row["ledger"] for row in verify_rows(tmp_path, run="one")] == ["a"]


def test_a_whole_chain_is_counted(tmp_path: Path) -> None:
    (row,) = verify_rows(book(tmp_path / "a.sqlite"))
    assert row["chain"] == "whole"
    assert row["entries"] == len(history_rows(tmp_path / "a.sqlite"))


def test_history_tells_entry_by_entry(tmp_path: Path) -> None:
    rows = history_rows(book(tmp_path / "a.sqlite", cap=None, noise=SIMULATION))
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    charged = [row for row in rows if row["cost"]]
    assert [row["what"] for row in charged] == ["run-1/0"]
    assert charged[0]["cost"] == f"{COST.describe()} ({NO_PROTECTION})"


def test_ledgers_are_found_below_a_folder_and_by_their_anchors(tmp_path: Path) -> None:
    book(tmp_path / "deep" / "a.sqlite")
    (tmp_path / "b.sqlite.anchor").write_text("{}")
    assert ledger_files(tmp_path) == [tmp_path / "b.sqlite", tmp_path / "deep" / "a.sqlite"]


def test_a_run_names_the_ledger_it_was_charged_to(tmp_path: Path) -> None:
    book(tmp_path / "mine" / "a.sqlite")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"ledger": str(tmp_path / "mine")}))
    assert ledger_files(tmp_path / "run") == [tmp_path / "mine" / "a.sqlite"]


def test_a_link_that_leads_out_is_no_ledger_of_the_folder(tmp_path: Path) -> None:
    book(tmp_path / "other" / "a.sqlite")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.sqlite").symlink_to(tmp_path / "other" / "a.sqlite")
    with pytest.raises(UserError):
        ledger_files(tmp_path / "run")


def test_no_ledger_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        ledger_files(tmp_path)
    assert str(error.value) == f"No ledger at '{tmp_path}'."
