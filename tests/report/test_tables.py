"""Tables for the terminal: epsilon in words, sizes, totals; never a blank where the guarantee stands."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from prismfl.report.tables import (
    encoder_words,
    epsilon_words,
    is_simulated,
    plan_table,
    result_table,
    scores_table,
    simple_table,
    size_words,
    total_words,
)
from prismfl.report.words import NO_PROTECTION

PRIVATE: dict[str, Any] = {"guarantee": "DP", "epsilon": 1.234, "unit": "record", "noise": "operating system"}
RESULT: dict[str, Any] = {
    **PRIVATE,
    "method": "fedavg",
    "data": "digits",
    "split": "iid",
    "sites": 5,
    "accuracy": 91.234,
    "delta": 1e-5,
    "relation": "add-remove",
    "bytes_up": 1500,
    "bytes_down": 2_500_000,
    "seconds": 1.25,
    "run_dir": "runs/x",
}
PLAN: dict[str, Any] = {
    **PRIVATE,
    "method": "prism",
    "epsilon_rdp": None,
    "epsilon_per_round": 0.5,
    "sigma": 1.5,
    "delta": 1e-5,
    "relation": "add-remove",
    "records": 1000,
    "rounds": 2,
    "releases": 10,
    "bytes_up": 999,
    "cost": "2 x Gaussian",
}


def shown(table: Table) -> str:
    console = Console(width=200, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "1.23 per record"),
        ({"guarantee": "none"}, "∞ (no DP guarantee)"),
        ({"epsilon": None}, "∞ (no DP guarantee)"),
        ({"guarantee": "nothing leaves"}, "0 (nothing leaves)"),
        ({"epsilon_total": 3.0}, "3 in all per record, this run 1.23"),
        ({"epsilon_total": None}, "∞ in all (no DP guarantee; this run 1.23)"),
        ({"noise": "seeded: simulation only"}, f"1.23 per record ({NO_PROTECTION})"),
        ({"guarantee": NO_PROTECTION}, f"1.23 per record ({NO_PROTECTION})"),
    ],
)
def test_epsilon_in_words(change: dict[str, Any], words: str) -> None:
    assert epsilon_words({**PRIVATE, **change}) == words


@pytest.mark.parametrize(
    ("guarantee", "noise", "simulated"),
    [
        ("DP", "seeded: simulation only", True),
        ("DP", "operating system", False),
        ("DP", None, False),
        ("none", "seeded: simulation only", False),
        ("nothing leaves", "seeded: simulation only", False),
    ],
)
def test_what_counts_as_simulated(guarantee: str, noise: str | None, simulated: bool) -> None:
    assert is_simulated({"guarantee": guarantee, "noise": noise}) == simulated


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2.5e9, "2.5 GB"), (9e12, "9000.0 GB")],
)
def test_sizes(count: float, words: str) -> None:
    assert size_words(count) == words


def test_totals_name_every_unit() -> None:
    total = {"by_unit": {"record, add-remove": 1.5, "patient, add-remove": None}, "releases": 3, "seeded_releases": 2}
    assert total_words(total) == (
        "epsilon 1.5 per record, no guarantee per patient over 3 releases; 2 of them seeded: no protection"
    )
    assert total_words({}) == "nothing over 0 releases"


def test_a_result_has_accuracy_epsilon_and_sizes() -> None:
    text = shown(result_table(RESULT))
    for words in ("91.23 %", "1.23 per record", "1.5 kB / 2.5 MB", "digits, iid, 5 sites", "delta 1e-05, unit record"):
        assert words in text
    assert "your data so far" not in text


def test_a_result_on_own_records_says_that_it_stays() -> None:
    text = shown(result_table({**RESULT, "own_data": True, "ledger": "/l", "spent_so_far": {"releases": 4}}))
    assert "exact, on own records: stays on this site" in text
    assert "nothing over 4 releases" in text


def test_a_seeded_result_says_no_protection_where_the_guarantee_stands() -> None:
    assert NO_PROTECTION in shown(result_table({**RESULT, "noise": "seeded: simulation only"}))


def test_a_public_encoder_says_what_it_was_trained_on() -> None:
    assert "public encoder" not in shown(result_table(RESULT))
    assert encoder_words({**RESULT, "encoder": "none"}) is None
    text = shown(result_table({**RESULT, "encoder": "net", "pretrained_on": "leaflets"}))
    assert "public encoder" in text
    assert "net, trained on leaflets" in text
    assert "scattering, not pretrained" in shown(result_table({**RESULT, "encoder": "scattering"}))


def test_no_accuracy_is_a_dash() -> None:
    assert "91.23" not in shown(result_table({**RESULT, "accuracy": None}))


def test_a_plan_shows_infinity_and_dashes_where_there_is_no_number() -> None:
    text = shown(plan_table({**PLAN, "sigma": None}))
    assert "Plan (no record was read)" in text
    assert "∞" in text  # no RDP figure
    assert "999 B" in text
    assert "2 x Gaussian" in text


def test_a_simple_table_has_its_rows() -> None:
    text = shown(simple_table("Things", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], caption="note"))
    for word in ("Things", "a", "b", "1", "x", "2", "y", "note"):
        assert word in text


def test_every_model_has_a_row_and_the_recommended_one_is_first() -> None:
    scores = {"accuracy": 80.0, "balanced_accuracy": 70.5, "auc": 91.26}
    models = {"head": {**scores, "auc": None}, "network": scores}
    text = shown(result_table({**RESULT, "models": models, "recommended": "network"}))
    assert "80.00 %, balanced 70.50 %, AUC 91.3 %; recommended" in text
    assert text.index("model network") < text.index("model head")
    assert text.count("recommended") == 1
    own = shown(result_table({**RESULT, "models": models, "recommended": "head", "own_data": True}))
    assert own.count("stays on this site") == 3, "each figure on own records says so"


def test_scores_have_dashes_where_there_is_no_record() -> None:
    scores = {"accuracy": 50.0, "balanced_accuracy": 50.0, "auc": None, "recall": [50.0, None]}
    text = shown(scores_table(("cat", "dog"), scores, records=2))
    assert "Scores (2 labelled)" in text
    assert [line.split("│")[2].strip() for line in text.splitlines() if "recall" in line] == ["50.00 %", "-"]


SCORES: dict[str, Any] = {
    **{"accuracy": 95.0, "balanced_accuracy": 62.5, "auc": 81.25, "recall": [99.0, 26.0], "unbalanced": True},
    **{"f1": 35.5, "f1_macro": 60.0, "average_precision": 41.0, "ece": 3.25, "brier": 0.0421, "positive": 1},
    "intervals": {"accuracy": [93.01, 97.0], "balanced_accuracy": [55.0, 70.0], "auc": None},
}


def result_with(**scores: Any) -> str:
    return shown(result_table({**RESULT, "models": {"head": {**SCORES, **scores}}, "recommended": "head"}))


def test_a_rare_class_brings_balanced_accuracy_and_two_classes_bring_the_area() -> None:
    def names(text: str) -> list[str]:
        return [line.split("│")[1].strip() for line in text.splitlines() if "│" in line]

    text = result_with()
    assert "62.50 % (95 %: 55.0 to 70.0)" in text
    assert "91.23 % (95 %: 93.0 to 97.0)" in text
    assert {"balanced accuracy", "AUC"} <= set(names(text))
    assert "balanced accuracy" not in names(result_with(unbalanced=False))
    assert "AUC" not in names(result_with(recall=[99.0, 26.0, 10.0]))


def test_a_result_of_an_older_version_has_no_such_rows() -> None:
    old = {key: SCORES[key] for key in ("accuracy", "balanced_accuracy", "auc")}
    text = shown(result_table({**RESULT, "models": {"head": old}, "recommended": "head"}))
    assert "95 %:" not in text


def test_every_score_stands_in_the_table_of_scores() -> None:
    text = shown(scores_table(("well", "ill"), SCORES, records=100))
    for words in ("F1 of ill", "35.50 %", "average precision of ill", "calibration error", "3.25 %", "0.0421"):
        assert words in text
