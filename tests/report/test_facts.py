"""The facts of a report: read off ledgers and files, what is lacking is said and never guessed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.report.editions import share
from prismfl.report.facts import _noisy_on_site, allowed, collect, natural
from prismfl.runs.directory import RunDirectory
from tests.runs.small import small_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("facts") / "r")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(finished, tmp_path / "r")
    return tmp_path / "r"


def lacks(path: Path) -> set[str]:
    return {line["what"] for line in collect(path)["missing"]}


def test_releases_are_those_on_the_ledgers(run: Path) -> None:
    facts = collect(run)
    assert {(r["site"], r["round"]) for r in facts["releases"]} == {
        (s, n) for s in ("site-0", "site-1") for n in (1, 2)
    }
    assert {row["chain"] for row in facts["ledger"]["chain"]} == {"whole"}


def test_the_guarantee_is_what_the_worst_site_has_spent(run: Path) -> None:
    g = collect(run)["guarantee"]
    spent = [Cost.from_json(r["cost"]) for r in collect(run)["releases"] if r["site"] == "site-0"]
    assert g["epsilon"] == pytest.approx(account.epsilon(spent[0] + spent[1], 1e-5))
    assert g["epsilon"] <= g["target"] == 3.0
    assert (g["known"], g["private"], g["simulation"]) == (True, True, True)
    assert g["leaves"] == {"model": "weights"}


def test_traffic_adds_up(run: Path) -> None:
    traffic = collect(run)["traffic"]
    result = RunDirectory(run).read_json("result.json")
    assert (traffic["up"], traffic["down"]) == (result["bytes_up"], result["bytes_down"])
    assert sum(row["up"] for row in traffic["sites"]) == traffic["up"]
    assert [row["round"] for row in traffic["rounds"]] == [1, 2]


def test_a_whole_run_lacks_only_attacks_and_audits(run: Path) -> None:
    assert lacks(run) == {"attacks", "audits"}


@pytest.mark.parametrize("what", ["result", "environment"])
def test_a_file_that_is_gone_is_said(what: str, run: Path) -> None:
    (run / f"{what}.json").unlink()
    assert what in lacks(run)


def test_a_run_that_is_not_finished_is_said(run: Path) -> None:
    RunDirectory(run).set_status("running")
    assert "unfinished" in lacks(run)
    assert not collect(run)["guarantee"]["final"]


def test_without_ledgers_and_their_copy_nothing_is_promised(run: Path) -> None:
    shutil.rmtree(run / "ledger")
    assert "ledger" in lacks(run)
    assert collect(run)["guarantee"]["known"]  # the run's own copy of the costs is still there
    (run / "ledger.json").unlink()
    assert not collect(run)["guarantee"]["known"]


def test_attacks_and_audits_are_read_and_damaged_ones_named(run: Path) -> None:
    for folder in ("attacks", "audits"):
        (run / folder).mkdir()
        (run / folder / "one.json").write_text(json.dumps([{"auc": 0.5}, {"auc": 0.6}]))
        (run / folder / "two.json").write_text("{")
    facts = collect(run)
    for folder in ("attacks", "audits"):
        assert facts[folder] == [
            {"name": "one", "auc": 0.5},
            {"name": "one", "auc": 0.6},
            {"name": "two", "unreadable": True},
        ]


def test_what_was_seen_of_an_earlier_run_is_counted_in(run: Path) -> None:
    result = RunDirectory(run).read_json("result.json")
    RunDirectory(run).write_json("result.json", {**result, "epsilon_total": 9.0})
    g = collect(run)["guarantee"]
    assert g["epsilon_total"] == 9.0
    assert g["allows"]["epsilon"] == 9.0


def test_a_total_below_the_runs_own_cost_is_not_believed(run: Path) -> None:
    result = RunDirectory(run).read_json("result.json")
    RunDirectory(run).write_json("result.json", {**result, "epsilon_total": 0.1})
    g = collect(run)["guarantee"]
    assert g["epsilon_total"] == g["epsilon"]


def test_the_encoder_is_shared_without_its_folder(run: Path) -> None:
    result = RunDirectory(run).read_json("result.json")
    words = {"encoder": "/home/mallory/net.onnx", "pretrained_on": "pictures in /home/mallory/x/y.png"}
    RunDirectory(run).write_json("result.json", {**result, **words})
    setting = share(collect(run))["setting"]
    assert (setting["encoder"], setting["pretrained_on"]) == ("net.onnx", "pictures in y.png")


def test_odds_without_and_with_a_guarantee() -> None:
    """At epsilon 0 a guess is a coin; at a large one it is certain; e / (1 + e) at epsilon 1 without delta."""
    assert allowed(0.0, 0.0)["right_guess"] == pytest.approx(0.5)
    assert allowed(30.0, 0.0)["right_guess"] == pytest.approx(1.0, abs=1e-3)
    assert allowed(1.0, 0.0)["right_guess"] == pytest.approx(2.71828 / 3.71828, abs=1e-3)


def test_sites_are_sorted_as_people_count() -> None:
    assert sorted(["site-10", "site-2", "north", "site-1"], key=natural) == ["north", "site-1", "site-2", "site-10"]


def test_noise_to_signal_is_never_taken_from_exact_messages() -> None:
    """A client-level run sends exact numbers to the hub: a figure from them would be an uncharged release."""
    assert _noisy_on_site({"private": True, "level": "site", "unit": "record"})
    assert _noisy_on_site({"private": True, "level": "site", "unit": "patient_id"})
    assert not _noisy_on_site({"private": True, "level": "client", "unit": "client"})
    assert not _noisy_on_site({"private": True, "level": "site", "unit": "client"})
    assert not _noisy_on_site({"private": False, "level": "site", "unit": "record"})
    assert not _noisy_on_site({"private": True, "level": None, "unit": "record"}), "of a method outside the package"
