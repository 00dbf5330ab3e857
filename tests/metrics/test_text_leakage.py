"""Attacks on synthetic texts: the control, a generator that copies, is caught; a grammar is not."""

from __future__ import annotations

import numpy as np

from prismfl.data.concepts import vocabulary
from prismfl.data.grammar import public_texts
from prismfl.metrics.text_leakage import exposed, neighbour_auc, phrases

CHEST = vocabulary("chest")
TEXTS = public_texts(CHEST, 300, seed=1, most=400)
MEMBERS, OTHERS = TEXTS[:100], TEXTS[100:200]


def test_a_generator_that_copies_is_caught_and_a_grammar_is_not() -> None:
    assert neighbour_auc(MEMBERS, MEMBERS, OTHERS) > 0.9
    assert 0.35 < neighbour_auc(TEXTS[200:], MEMBERS, OTHERS) < 0.65


def test_a_planted_phrase_is_found_where_it_was_copied() -> None:
    canary = "purple zebras dance under seven moons"
    private = [f"{text} {canary}" for text in MEMBERS]
    assert exposed(private, [canary]) == len(phrases([canary], 5)) == 2
    assert exposed(TEXTS[200:], [canary]) == 0
    assert exposed(private, [canary], public=[canary]) == 0, "what is public is nobody's"


def test_phrases_are_runs_of_words() -> None:
    assert phrases(["One two, three"], 2) == {("one", "two"), ("two", "three")}
    assert phrases(["short"], 5) == set()
    assert np.isfinite(neighbour_auc([""], ["a"], ["b"]))
