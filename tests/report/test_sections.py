"""Sections of the page from plain facts: verdicts, checks, and lines for what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from prismfl.report import sections
from prismfl.report.words import NO_PROTECTION
from tests.report.test_words import CASES, FULL


def facts(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "guarantee": {**FULL, "leaves": {"model": "weights"}, "target": 2.0},
        "noise": "operating system",
        "run": {"status": "finished"},
        "ledger": {"chain": [{"ledger": "a", "chain": "whole", "entries": 4}], "status": []},
        "attacks": [],
        "audits": [],
        "withheld": [],
        "missing": [],
        "releases": [],
        "pictures": [],
        "partition": None,
        "config": {},
        "setting": {"method": "prism"},
        "utility": {"accuracy": 90.0, "accuracy_min": 90.0, "classes": 10, "rounds": []},
    }
    return {**plain, **changes}


def states(found: dict[str, Any]) -> dict[str, str]:
    return {what: state for state, what, _ in sections.checks(found)}


def test_a_finished_private_run_passes_what_was_checked() -> None:
    assert states(facts()) == {
        "Run finished": "pass",
        "Ledgers verify": "pass",
        "Within the budget": "pass",
        "Attacks against the bound": "open",
        "Audit": "open",
        "Noise": "pass",
    }


def test_spending_over_the_budget_fails() -> None:
    over = facts(guarantee={**FULL, "leaves": {}, "target": 0.5})
    assert states(over)["Within the budget"] == "fail"


@pytest.mark.parametrize(
    ("change", "check", "state"),
    [
        ({"run": {"status": "running"}}, "Run finished", "fail"),
        ({"ledger": {"chain": [], "status": []}}, "Ledgers verify", "open"),
        ({"guarantee": {**CASES["none"], "leaves": {}}}, "Differential privacy", "fail"),
        ({"guarantee": {**CASES["simulation"], "leaves": {}}}, "Differential privacy", "fail"),
        ({"noise": "seeded: simulation only"}, "Noise", "open"),
        ({"attacks": [{"name": "a", "within_bound": True}]}, "Attacks against the bound", "pass"),
        (
            {"attacks": [{"name": "a", "within_bound": True}, {"name": "b", "within_bound": False}]},
            "Attacks against the bound",
            "fail",
        ),
        ({"audits": [{"name": "a", "passed": True}]}, "Audit", "pass"),
        ({"audits": [{"name": "a", "passed": False}]}, "Audit", "fail"),
        ({"audits": [{"name": "a", "passed": False}], "withheld": ["audits"]}, "Audit", "open"),
    ],
)
def test_each_check(change: dict[str, Any], check: str, state: str) -> None:
    assert states(facts(**change))[check] == state


def test_the_verdict_has_its_headline_and_limits() -> None:
    html = sections.guarantee(facts())
    assert 'class="verdict full"' in html
    assert "Every record is protected: epsilon 1 at delta 1e-05." in html
    assert "model (weights)" in html
    assert "73.1 %" in html


def test_the_public_encoder_stands_beside_the_guarantee() -> None:
    assert "Public encoder" not in sections.guarantee(facts())
    looked = {"method": "prism", "encoder": "net", "pretrained_on": "<b>leaflets"}
    assert "<dt>Public encoder</dt><dd>net, trained on &lt;b&gt;leaflets</dd>" in sections.guarantee(
        facts(setting=looked)
    )


def test_a_simulation_has_no_meter() -> None:
    html = sections.guarantee(facts(guarantee={**CASES["simulation"], "leaves": {}}))
    assert 'class="meter"' not in html
    assert NO_PROTECTION in html


def release(number: int) -> dict[str, Any]:
    return {"site": "site-0", "round": number, "bytes": 1000, "words": "cost", "digest": "d", "confirmed": number != 2}


def test_releases_are_listed_in_the_order_of_rounds() -> None:
    html = sections.releases(facts(releases=[release(2), release(1)]))
    assert html.startswith("<p>2 releases, 2.0 kB in all.")
    assert html.index(">yes<") < html.index(">not confirmed<")
    assert "<details>" not in html


def test_many_releases_are_folded_and_the_rest_is_named() -> None:
    html = sections.releases(facts(releases=[release(n) for n in range(700)]))
    assert "<summary>The other 588 releases</summary>" in html
    assert "100 further releases are in the JSON twin." in html


def test_lines_for_what_is_not_there() -> None:
    assert sections.releases(facts()).startswith("<p>No release is on a ledger")
    assert sections.pictures(facts()).startswith("<p>Nothing is delivered")
    assert "theirs to know" in sections.partition(facts())
    assert "no accuracy on record" in sections.utility(
        facts(utility={"accuracy": None, "accuracy_min": None, "classes": None, "rounds": []}), []
    )
    assert "measured on this site only" in sections.utility(facts(withheld=["accuracy"]), [])


def test_accuracy_stands_beside_guessing() -> None:
    html = sections.utility(facts(), [])
    assert "guessing at random" in html
    assert "10.0 %" in html


def test_private_pictures_are_stamped() -> None:
    pictures = [{"title": "<b>", "png": "AAAA", "private": True}]
    html = sections.pictures(facts(pictures=pictures))
    assert "on site only, do not send" in html
    assert "<b>" not in html.replace("&lt;b&gt;", "")


@pytest.mark.parametrize(
    ("guarantee", "name"),
    [
        (FULL, "prism, ε = 1"),
        (CASES["simulation"], "prism, ε = 1 (simulation)"),
        (CASES["none"], "prism, ε = ∞"),
        (CASES["unknown"], "prism, ε unknown"),
    ],
)
def test_a_run_is_called_by_method_and_budget(guarantee: dict[str, Any], name: str) -> None:
    assert sections.run_name(facts(guarantee=guarantee)) == name


def test_what_is_missing_is_listed() -> None:
    html = sections.check_list(facts(missing=[{"what": "audits", "words": "No audit <was> run."}]))
    assert "What is missing from this report" in html
    assert "No audit &lt;was&gt; run." in html
