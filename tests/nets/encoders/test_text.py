"""Encoders of text: what a sentence says, what it denies, and that each text is read by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prismfl.data.concepts import vocabulary
from prismfl.data.texts import text_bytes
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.text import DeclaredConcepts, HashedNgrams, WordVectors, finder, said_in, texts_of

CHEST = vocabulary("chest")
AT = {concept.name: i for i, concept in enumerate(CHEST)}
TEXTS = ["No pleural effusion. There is a nodule.", "", "Der Befund ist unauffällig.", "肺炎の疑い", "\x00 odd"]


def rows(texts: list[str]) -> torch.Tensor:
    return torch.from_numpy(text_bytes(texts, 200)).float() / 255


def encoders() -> list[Encoder]:
    vectors = WordVectors("v", np.eye(3, dtype=np.float32), ["no", "nodule", "befund"], digest="0", trained_on="x")
    return [HashedNgrams(), DeclaredConcepts("chest", CHEST), vectors]


def mentions(text: str) -> set[tuple[str, bool]]:
    return {(CHEST[i].name, denied) for i, denied in said_in(text, finder(CHEST))}


def test_a_finding_is_said_or_denied_within_its_own_sentence() -> None:
    found = mentions("No effusion or pneumothorax. Small nodule. Without edema but with atelectasis.")
    assert {("effusion", True), ("pneumothorax", True), ("nodule", False), ("atelectasis", False)} <= found
    assert ("edema", True) in found
    assert ("effusion", False) not in found


def test_a_word_is_known_by_its_beginning_a_marked_one_as_a_whole() -> None:
    assert ("calcification", False) in mentions("calcified granulomas")
    assert ("acute", False) in mentions("acute")
    assert ("acute", False) not in mentions("acutely")
    assert ("cardiomegaly", False) in mentions("enlarged heart")
    assert ("cardiomegaly", False) not in mentions("enlarged nodes, heart")


@pytest.mark.parametrize("encoder", encoders(), ids=lambda encoder: type(encoder).__name__)
def test_an_encoder_of_text_keeps_the_rules_of_encoders(encoder: Encoder) -> None:
    check_encoder(encoder, rows(TEXTS))
    whole = encoder.activations(rows(TEXTS))
    one = encoder.activations(rows(TEXTS)[:1])
    none = encoder.activations(rows(TEXTS)[:0])
    for layer in encoder.layers:
        assert torch.equal(whole[layer][:1], one[layer])
        assert len(none[layer]) == 0
        assert not whole[layer][1].any(), "no text says nothing"
    assert encoder.sees == "text"
    assert len(encoder.digest) > 0


def test_hashed_ngrams_tell_texts_apart_whatever_the_language() -> None:
    found = HashedNgrams().activations(rows(["der Befund", "Befund der", "kein Befund", "肺炎の疑い", "肺炎"]))[
        "ngrams"
    ]
    assert torch.equal(found[0], found[1]), "common words say nothing"
    assert float(found[0] @ found[2]) > 0.2
    assert abs(float(found[3] @ found[4])) < 0.5
    assert torch.allclose(found.norm(dim=1), torch.ones(5), atol=1e-5)


def test_numbers_that_are_no_bytes_are_read_as_the_nearest() -> None:
    given = torch.tensor([[65 / 255 + 1e-4, 2.0, -1.0, float("nan")]])
    assert texts_of(given.nan_to_num(0.0)) == ["A\ufffd"]


def test_the_digest_is_that_of_the_vocabulary() -> None:
    assert DeclaredConcepts("chest", CHEST).digest == DeclaredConcepts("chest", CHEST).digest
    assert DeclaredConcepts("chest", CHEST).digest != DeclaredConcepts("chest", CHEST[1:]).digest
