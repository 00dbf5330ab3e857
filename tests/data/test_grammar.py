"""Written reports: they say what they were told to, and nothing but words of ours."""

from __future__ import annotations

import numpy as np

from prismfl.data.concepts import vocabulary
from prismfl.data.grammar import every_sentence, public_texts, write
from prismfl.nets.encoders.text import finder, said_in

CHEST = vocabulary("chest")
AT = {concept.name: i for i, concept in enumerate(CHEST)}


def said(**marks: int) -> np.ndarray:
    found = np.zeros(len(CHEST), dtype=np.int8)
    for name, mark in marks.items():
        found[AT[name]] = mark
    return found


def test_a_report_says_and_denies_what_it_was_told() -> None:
    find = finder(CHEST)
    for seed in range(20):
        text = write(CHEST, said(nodule=1, effusion=-1, left=1, clear=1), np.random.default_rng(seed), most=500)
        mentions = said_in(text, find)
        assert (AT["nodule"], False) in mentions
        assert (AT["effusion"], True) in mentions
        assert (AT["left"], False) in mentions
        assert (AT["edema"], False) not in mentions


def test_a_report_ends_at_a_sentence_within_its_bytes() -> None:
    text = write(CHEST, np.ones(len(CHEST), dtype=np.int8), np.random.default_rng(0), most=100)
    assert 20 < len(text.encode()) <= 100
    assert text.endswith(".")
    assert write(CHEST, said(), np.random.default_rng(0), most=100) == ""


def test_public_texts_are_the_same_whatever_is_asked_for() -> None:
    few, many = (public_texts(CHEST, n, seed=3, most=400) for n in (3, 6))
    assert few == many[:3]
    assert len(set(many)) == 6
    assert public_texts(vocabulary("medicine"), 2, seed=3, most=400) != few[:2]


def test_every_sentence_that_can_be_written_is_known() -> None:
    for name in ("chest", "medicine"):
        concepts = vocabulary(name)
        known = set(every_sentence(concepts))
        assert len(known) < 200_000
        texts = public_texts(concepts, 400, seed=5, most=2000)
        assert all(part.rstrip(".") + "." in known for text in texts for part in text.split(". "))
