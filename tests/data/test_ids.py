from __future__ import annotations

import unicodedata
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismfl.data.ids import canonical_id, canonical_text, unit_codes
from prismfl.errors import UserError


@pytest.mark.parametrize(
    "same",
    [
        ["1", "1.0", "01", " 1 ", 1, 1.0, "1e0", "+1", "1.", "10e-1", np.int8(1), np.float32(1), Decimal("1.00"), b"1"],
        ["\u0661", "\uff11", "1\u200b", "\ufeff1", "\u00a01\t"],
        ["-7", "\u22127", -7, "\u20137.0"],
        ["0", "-0", 0, -0.0, "0e5", "00"],
        ["100000", "1e5", "1E+5", 100000],
        ["9007199254740993", "9007199254740993.0", 9007199254740993, np.int64(9007199254740993)],
        ["Zo\u00eb", "Zoe\u0308", "Zo\u200be\u0308", "Zoe\u200d\u0308", " Zo\u00eb\u00ad", "Zo\u00eb\ufe0f"],
        ["Ann Lee", "Ann  Lee", "Ann\u2003Lee", "Ann\u00a0Lee", "Ann\tLee\n", "\uff21nn Lee"],
        ["P-12", "P\u201112", "P\u201312", "P\u221212", "P-\u0661\u0662"],
    ],
)
def test_one_person_written_in_several_ways_is_one(same: list[object]) -> None:
    assert {canonical_id(value) for value in same} == {canonical_id(same[0])}, [canonical_id(v) for v in same]


def test_what_is_seen_to_differ_differs() -> None:
    ids = ["1", "2", "10", "-1", "1.5", "15", "ann", "Ann", "9007199254740992", "9007199254740993", "1e99", "1a"]
    assert len({canonical_id(value) for value in ids}) == len(ids)


@pytest.mark.parametrize("value", [2.0**53, -(2.0**60), 1.5, np.float32(2**24), np.float16(4096), float("inf")])
def test_floats_that_may_stand_for_several_people_are_refused(value: float) -> None:
    with pytest.raises(
        UserError, match=r"Id column 'patient', row 2: Expected whole .* save the ids \(--unit\) as text"
    ):
        unit_codes([1.0, value], "patient")


def test_the_largest_exact_floats_are_taken() -> None:
    assert canonical_id(2.0**53 - 1) == canonical_id("9007199254740991")


@pytest.mark.parametrize("value", ["", None, float("nan"), " \u200b", "NA", "\ufeff"])
def test_an_empty_id_is_refused(value: object) -> None:
    with pytest.raises(UserError, match=r"Empty or NaN cell in id column 'patient', row 2"):
        unit_codes(["a", value], "patient")


def test_a_number_of_a_million_digits_or_an_endless_exponent_is_an_id_like_others() -> None:
    assert canonical_id("1e999999999") == "1e999999999"
    assert canonical_id("1e" + "9" * 40) == "1e" + "9" * 40
    assert len(canonical_id("7" * 10**6)) == 10**6


def test_a_code_follows_from_its_id_alone() -> None:
    ids = ["p3", "p1", "p2", "p1"]
    codes = unit_codes(ids, "patient")
    assert codes.dtype == np.int64
    assert codes.min() >= 0
    assert codes[1] == codes[3]
    assert len(set(codes.tolist())) == 3
    assert unit_codes(ids[1:], "patient").tolist() == codes[1:].tolist()
    assert unit_codes(np.array([7, 8]), "patient").tolist() == unit_codes(["08", "7.0"], "patient").tolist()[::-1]


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_the_form_is_final_and_the_same_for_equivalent_text(text: str) -> None:
    form = canonical_text(text)
    assert canonical_text(form) == form
    assert canonical_id(canonical_id(text)) == canonical_id(text)
    for kind in ("NFC", "NFD", "NFKC", "NFKD"):
        assert canonical_text(unicodedata.normalize(kind, text)) == form
