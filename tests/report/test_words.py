"""The guarantee in plain words: one place, five cases, never softer than the facts."""

from __future__ import annotations

from typing import Any

import pytest

from prismfl.privacy.guessing import guess_words, most_right
from prismfl.report import words
from prismfl.report.words import NO_PROTECTION

FULL: dict[str, Any] = {
    "known": True,
    "private": True,
    "nothing_leaves": False,
    "epsilon": 1.0,
    "delta": 1e-5,
    "unit": "record",
    "relation": "add-remove",
    "words": "1 x Gaussian",
    "allows": {"right_guess": 0.731, "tpr_at_0.01": 0.027},
    "level": "site",
}
CASES: dict[str, dict[str, Any]] = {
    "unknown": {"known": False},
    "none": {**FULL, "private": False, "epsilon": None},
    "nothing": {**FULL, "nothing_leaves": True, "epsilon": 0.0},
    "simulation": {**FULL, "simulation": True},
    "full": FULL,
}


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_its_name(name: str) -> None:
    assert words.kind(CASES[name]) == name


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("unknown", "The cost of this run cannot be read, so nothing is promised."),
        ("none", "No differential privacy: epsilon is infinite."),
        ("nothing", "Nothing left the sites: epsilon is 0."),
        ("simulation", "Simulation: no protection. With secret noise it would be epsilon 1 at delta 1e-05."),
        ("full", "Every record is protected: epsilon 1 at delta 1e-05."),
    ],
)
def test_headlines(name: str, line: str) -> None:
    assert words.headline(CASES[name]) == line


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("unknown", "unknown"),
        ("none", "none"),
        ("nothing", "nothing leaves"),
        ("simulation", NO_PROTECTION),
        ("full", "differential privacy"),
    ],
)
def test_the_cell_of_a_table(name: str, cell: str) -> None:
    assert words.short(CASES[name]) == cell


def test_a_start_without_a_guarantee_takes_the_guarantee_away() -> None:
    g = {**FULL, "epsilon_total": None}
    assert words.kind(g) == "none"
    assert words.headline(g) == (
        "No differential privacy: the model started from one without a guarantee (this run by itself: epsilon 1)."
    )


def test_earlier_runs_are_counted_in() -> None:
    g = {**FULL, "epsilon_total": 3.5}
    assert words.headline(g) == "Every record is protected: epsilon 3.5 in all at delta 1e-05 (this run alone: 1)."
    rows = dict(words.protected(g))
    assert rows["Epsilon in all"] == "3.5: this run and the earlier runs that the model starts from"
    assert "Epsilon in all" not in dict(words.protected(FULL))


def test_the_meaning_has_the_attackers_best_odds() -> None:
    meaning = words.meaning(FULL)
    assert "is right at most 73.1 % of the time (a coin: 50 %)" in meaning
    assert "at most 2.7 % of those who were used can be named" in meaning
    assert guess_words(most_right(1.0, 1e-5), "it") in meaning, "the words of `prismfl new`"


def test_a_run_that_allows_less_than_its_epsilon_says_which_bound_it_is() -> None:
    own = {**FULL, "allows": {**FULL["allows"], "right_guess": 0.553}}
    assert "55.3 % of the time" in words.meaning(own)
    assert "by this run's own noise (epsilon alone: 73.1 %)" in words.meaning(own)
    assert "own noise" not in words.meaning(FULL)


def test_a_simulation_promises_nothing_for_itself() -> None:
    meaning = words.meaning(CASES["simulation"])
    assert meaning.startswith("The noise was drawn from a seed.")
    rows = dict(words.protected(CASES["simulation"]))
    assert rows["Guarantee"] == NO_PROTECTION
    assert rows["From whom"].startswith("nobody; with secret noise: ")
    assert rows["Epsilon, delta"].endswith(f"; {NO_PROTECTION})")


def test_no_guarantee_is_said_in_every_row() -> None:
    assert words.protected(CASES["none"]) == [
        ("Unit", "none"),
        ("From whom", "nobody"),
        ("Epsilon", "∞ (no DP guarantee)"),
    ]
    assert words.not_protected(CASES["none"], None) == ["Nothing is protected by differential privacy in this run."]
    assert words.protected(CASES["unknown"]) == []


@pytest.mark.parametrize(
    ("unit", "said"),
    [("record", "record"), ("client", "client (a whole site)"), ("patient", "patient with all its records")],
)
def test_units_in_words(unit: str, said: str) -> None:
    assert words.unit_words(unit) == said


def test_at_client_level_the_hub_sees_everything() -> None:
    g = {**FULL, "level": "client", "unit": "client"}
    assert words.against(g) == "everybody except the hub, which sees each client's exact update"
    limits = words.not_protected(g, None)
    assert limits[-1] == "Anything from the hub itself, and single records within a client."
    assert not any("several records" in line for line in limits)


def test_limits_name_several_records_of_a_person_and_the_seed() -> None:
    limits = words.not_protected(FULL, "seeded: simulation only")
    assert limits[0] == "Anything, from somebody who knows the seed: the noise was seeded, for simulation only."
    assert "A person with several records: k records are protected about k times less than one." in limits
    assert len(words.not_protected(FULL, "operating system")) == len(limits) - 1


def test_cross_check_and_target_are_shown_where_there_are_any() -> None:
    rows = dict(words.protected({**FULL, "epsilon_rdp": 1.25, "target": 2.0}))
    assert rows["Cross-check"] == "1.25 by Rényi accounting, an upper bound"
    assert rows["Budget asked for"] == "2"
    assert rows["Relation"] == "add-remove: added or removed"
