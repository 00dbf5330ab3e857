"""Automatic settings of texts and patients: public numbers alone, and what was given stays."""

from __future__ import annotations

from dataclasses import replace

from prismfl.core.method import Wanted
from prismfl.methods.prism import auto
from prismfl.methods.prism.auto_parts import auto_parts
from tests.methods.test_prism_patients import task


def test_a_rank_is_rehearsed_and_the_shares_are_said_to_be_equal() -> None:
    found = auto_parts(Wanted({}, task(), 1.0))
    assert found.settings["rank"] == found.settings["covariance"]
    assert found.settings["networks"] == 0
    assert "equal" in found.words[2]
    assert auto.auto(Wanted({}, task(), 1.0)).settings == found.settings
    less = auto_parts(Wanted({}, replace(task(), records=20), 0.2))
    assert less.settings["rank"] <= found.settings["rank"]


def test_what_was_given_stays_and_a_secure_sum_has_no_centre() -> None:
    found = auto_parts(Wanted({"rank": 24, "part_shares": (2.0, 1.0)}, task(), 1.0, secure=True))
    assert "rank" not in found.settings
    assert found.settings["centring"] == 0.0
    assert "as given" in found.words[2]


def test_without_public_records_the_plain_defaults() -> None:
    assert auto_parts(Wanted({}, replace(task(), public=None), 1.0)).settings == {}
