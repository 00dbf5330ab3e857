"""The declared vocabularies: each concept once, with stems that find its own phrases."""

from __future__ import annotations

import pytest

from prismfl.data.concepts import VOCABULARIES, vocabulary
from prismfl.errors import UserError
from prismfl.nets.encoders.text import finder, said_in


@pytest.mark.parametrize("name", VOCABULARIES)
def test_what_the_grammar_writes_of_a_concept_is_read_as_that_concept(name: str) -> None:
    concepts = vocabulary(name)
    find = finder(concepts)
    assert len({concept.name for concept in concepts}) == len(concepts)
    for i, concept in enumerate(concepts):
        for phrase in concept.phrases:
            assert (i, False) in said_in(phrase, find), (concept.name, phrase)


def test_an_unknown_vocabulary_is_an_error_and_none_is_none() -> None:
    assert vocabulary("") == ()
    with pytest.raises(UserError, match="chest, medicine"):
        vocabulary("chset")
