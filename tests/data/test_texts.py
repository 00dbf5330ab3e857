"""Text as bytes: no cell is an error, and what comes out has the declared length whatever went in."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.data.texts import bytes_text, cleaned, text_bytes


def test_what_is_no_text_is_no_text() -> None:
    rows = text_bytes([None, float("nan"), "", "  \t\n ", "\x00\x01\u200b", b""], 32)
    assert rows.shape == (6, 32)
    assert not rows.any()


def test_control_and_hidden_signs_become_blanks() -> None:
    assert cleaned("no\x00 acute\r\n\x1b[31mdisease\u202e\ufeff.", 100) == "no acute [31mdisease ."
    assert "\x7f" not in cleaned("a\x7fb", 10)


def test_other_encodings_are_read_by_the_rule_and_never_refused() -> None:
    assert cleaned("Übelkeit".encode("latin-1"), 20) == "\ufffdbelkeit"
    assert cleaned("Übelkeit".encode(), 20) == "Übelkeit"
    assert cleaned("u\u0308bel", 20) == "übel"  # composed: the same word has the same bytes
    assert cleaned("lone \ud800 half", 20) == "lone half"
    assert cleaned("肺炎の疑い", 20) == "肺炎の疑い"
    assert cleaned(37.5, 20) == "37.5"


@pytest.mark.parametrize("most", [8, 9, 10, 11])
def test_a_text_is_cut_at_a_whole_character(most: int) -> None:
    found = cleaned("äöü€€€€", most)
    assert len(found.encode()) <= most
    assert "äöü€€€€".startswith(found)
    assert bytes_text(text_bytes(["äöü€€€€"], most)[0]) == found


def test_ten_megabytes_in_one_cell_cost_no_more_than_a_page() -> None:
    # Bound by work, not by the clock: what lies behind the first characters is never looked at.
    class Counted(str):
        looked = 0

        def __getitem__(self, part: slice) -> str:  # type: ignore[override]
            Counted.looked = part.stop
            return str.__getitem__(self, part)

    rows = text_bytes([Counted("x " * 5_000_000), b"\xff" * 10_000_000], 1000)
    assert rows.shape == (2, 1000)
    assert Counted.looked <= 10_000


def test_bytes_come_back_as_the_text() -> None:
    texts = ["No acute disease.", "", "fièvre à 39°"]
    assert [bytes_text(row) for row in text_bytes(texts, 40)] == texts
    assert bytes_text(np.array([0x80, 0x41, 0, 0x42], dtype=np.uint8)) == "\ufffdA"


def test_marks_without_end_are_cut_before_they_are_put_in_order() -> None:
    """To bring n accents of one letter into their order takes n * n steps."""
    assert len(cleaned("a" + "\u0316\u0301" * 50_000, 20_000)) <= 32
    assert cleaned("e\u0301t\u0301e", 100) == "\u00e9t\u0301e"


def test_bytes_say_by_their_mark_how_they_are_written() -> None:
    for how in ("utf-8-sig", "utf-16"):
        assert cleaned("\u00d6dem rechts".encode(how), 100) == "\u00d6dem rechts"
    assert cleaned(b"\xff\xfeo", 100) == "\ufffd"
