"""Runs in one chart are alike: the same data, unit, relation and delta."""

from __future__ import annotations

from typing import Any

import pytest

from prismfl.report.groups import Group, beside, group_of, grouped, make_group
from tests.report.test_sections import facts

SETTING = {"method": "prism", "data": "digits", "unit": "record", "relation": "add-remove", "delta": 1e-5}


def run(setting: dict[str, Any] | None = None, **promised: Any) -> dict[str, Any]:
    told = {**facts()["guarantee"], "unit": "record", "relation": "add-remove", "delta": 1e-5, **promised}
    return facts(setting={**SETTING, **(setting or {})}, guarantee=told)


def test_alike_runs_are_one_group_whatever_their_method() -> None:
    runs = [run(), run({"method": "fedavg"})]
    assert list(grouped(runs)) == [Group("digits", "record", "add-remove", "1e-05")]
    assert beside(runs[0], runs) == [runs[1]]


@pytest.mark.parametrize(
    "other",
    [
        run({"data": "adult"}),
        run(unit="client"),
        run(unit="patient_id"),
        run(relation="replace-one"),
        run(delta=1e-6),
    ],
)
def test_unlike_data_units_relations_and_deltas_are_apart(other: dict[str, Any]) -> None:
    runs = [run(), other, run({"method": "fedavg"})]
    assert [len(members) for members in grouped(runs).values()] == [2, 1]
    assert beside(other, runs) == []


def test_a_run_that_was_cut_off_has_a_group_too() -> None:
    cut = facts(setting={"method": "x", "data": "digits"}, guarantee={"known": False})
    assert group_of(cut) == Group("digits", "", "", "")
    assert group_of(cut).words() == "digits"


def test_the_heading_names_what_they_have_in_common() -> None:
    promise = {"unit": "client", "relation": "add-remove", "delta": 1e-5}
    assert make_group(promise, {"data": "digits"}).words() == "digits, per client, add-remove, delta 1e-05"
