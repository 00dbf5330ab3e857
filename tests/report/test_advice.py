"""Advice by hand-computed numbers, and silence where nothing is wrong or an edition withholds it."""

from __future__ import annotations

from typing import Any

import pytest

from prismfl.report.advice import advice, majority, records_of, share_of
from tests.report.test_sections import facts
from tests.report.test_words import CASES, FULL

PROMISE = {**FULL, "leaves": {"model": "weights"}, "level": "record", "target": 2.0}


def run(**changes: Any) -> dict[str, Any]:
    traffic = {"up": 0, "down": 0, "rounds": [], "sites": []}
    plain = {"guarantee": PROMISE, "traffic": traffic, "setting": {"method": "prism", "data": "d", "sites": 4}}
    return facts(**{**plain, **changes})


def test_a_good_run_has_no_advice() -> None:
    assert advice(run()) == []
    assert advice(run(config={"records": 5000}, noise_to_signal=0.2)) == []


def test_a_seeded_run_is_no_protection_and_no_guarantee_is_said() -> None:
    (line,) = advice(run(guarantee={**CASES["simulation"], "leaves": {}}))
    assert "seeded, which protects nobody" in line
    (line,) = advice(run(guarantee={**CASES["none"], "leaves": {}}))
    assert "There is no guarantee" in line


def test_a_run_that_was_cut_off_is_to_be_resumed() -> None:
    assert "prismfl resume" in advice(run(run={"status": "running"}))[0]


@pytest.mark.parametrize(("records", "warned"), [(99_999, False), (200_000, True)])
def test_delta_above_one_over_the_records(records: int, warned: bool) -> None:
    """Delta is 1e-5: one over 100 000."""
    found = advice(run(config={"records": records}))
    assert bool(found) == warned
    assert not warned or "above one over 200000 records" in found[0]
    assert not warned or "--delta 5e-07" in found[0]


@pytest.mark.parametrize(("ratio", "said"), [(0.5, None), (1.84, "1.8:"), (100.0, "100 or more:")])
def test_noise_to_signal(ratio: float, said: str | None) -> None:
    found = advice(run(noise_to_signal=ratio))
    assert (not found) if said is None else f"{said} more records, a larger epsilon or a secure sum." in found[0]


def drowned(level: str, **settings: Any) -> dict[str, Any]:
    """Four sites, each of which sends 40 000 bytes a round: 10 000 numbers."""
    rounds = settings.get("rounds", 4)
    traffic = {"up": 40_000 * 4 * rounds, "down": 0, "rounds": [], "sites": [{"site": f"s{i}"} for i in range(4)]}
    return run(
        guarantee={**PROMISE, "level": level},
        traffic=traffic,
        releases=[{"site": "s0"}],
        config={"settings": {"sigma": 2.0, "rounds": 4, **settings}},
    )


def test_a_client_level_run_that_drowns() -> None:
    """2 * sqrt(10000 / 4) / 4 = 25."""
    assert share_of(drowned("client")) == pytest.approx(25.0)
    (line,) = advice(drowned("client"))
    assert "drowns the 4 clients: it is 25.0 times as long" in line


def test_a_record_level_run_with_long_noise() -> None:
    """2 * sqrt(10000 / (4 * 25 * 4)) / 5 = 2; with batches of 100 it is 0.1."""
    assert share_of(drowned("record", steps=25, batch=5)) == pytest.approx(2.0)
    assert "2.0 times as long as the way of the steps" in advice(drowned("record", steps=25, batch=5))[0]
    assert advice(drowned("record", steps=25, batch=100)) == []
    assert share_of(drowned("record")) is None, "no batch, no figure"


def test_a_simple_model_that_beats_the_network() -> None:
    def models(**scores: float | None) -> list[dict[str, Any]]:
        return [{"name": name, "accuracy": score} for name, score in scores.items()]

    (line,) = advice(run(models=models(head=80.0, linear=85.0, network=60.0)))
    assert line.startswith("The linear model has 85.0 %, the network 60.0 %")
    assert advice(run(models=models(head=80.0, linear=85.0, network=84.0))) == []
    assert advice(run(models=models(network=None, linear=85.0))) == []


def test_accuracy_below_the_share_of_the_majority() -> None:
    split = {"title": "", "classes": ["a", "b"], "rows": [{"site": "s", "counts": [95, 5]}]}
    assert majority(run(partition=split)) == 95.0
    assert records_of(run(partition=split)) == 100
    (line,) = advice(run(partition=split))
    assert "Accuracy 90.0 % is below the 95.0 %" in line
    told = {
        "accuracy": 90.0,
        "accuracy_min": 90.0,
        "classes": 2,
        "rounds": [],
        "scores": {"confusion": [[8, 2], [0, 2]]},
    }
    assert majority(run(utility=told)) == pytest.approx(100 * 10 / 12)
    withheld = {**told, "accuracy": None}
    assert advice(run(utility=withheld, partition=split)) == []
