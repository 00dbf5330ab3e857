"""Reports that are nobody's: sentences written from declared concepts by fixed templates, and public text of them.

What is written depends on the concepts that are handed in and on a seed alone, and every word stands in this file or in
`concepts`. So a report filled from released numbers can hold no phrase of a private text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
import numpy.typing as npt

from prismfl.data.concepts import Concept

Rng = np.random.Generator
Said = npt.NDArray[np.int8]  # one number a concept: 1 said, -1 denied, 0 not mentioned

_SAID = ("There is {}.", "{} is seen.", "Findings of {}.", "The film shows {}.", "Impression: {}.")
_DENIED = ("No {}.", "There is no {}.", "No evidence of {}.", "The study is without {}.")
_ABOUT = (
    "We studied patients with {}.",
    "The effect of {} was examined.",
    "{} was found in most patients.",
    "The role of {} is discussed.",
    "These results suggest that {} is important.",
    "A series of patients underwent treatment for {}.",
)
SAID_OFTEN, DENIED_OFTEN = 0.12, 0.15  # how often a finding is said or denied in public text, at random
_STREAM = 0x7E87


def write(concepts: Sequence[Concept], said: Said, rng: Rng, *, most: int) -> str:
    """A report that says these concepts, and denies those marked so, in a random order and at most `most` bytes."""
    modifiers = [i for i, concept in enumerate(concepts) if concept.kind == "modifier" and said[i] > 0]
    rng.shuffle(modifiers)
    sentences = []
    order = rng.permutation(len(concepts))
    for i in order:
        concept = concepts[i]
        if not said[i] or concept.kind == "modifier":
            continue
        phrase = str(rng.choice(concept.phrases))
        if concept.kind == "statement":
            if said[i] > 0:
                sentences.append(phrase)
            continue
        if concept.kind == "topic":
            sentences.append(_filled(_ABOUT, phrase, rng))
        elif said[i] > 0:
            words = [str(rng.choice(concepts[m].phrases)) for m in modifiers[:2]]
            del modifiers[:2]
            sentences.append(_filled(_SAID, _modified(words, phrase), rng))
        else:
            sentences.append(_filled(_DENIED, _bare(phrase), rng))
    text = ""
    for sentence in sentences:
        if len(f"{text} {sentence}".encode()) <= most:
            text = f"{text} {sentence}".strip()
    return text


def public_texts(concepts: Sequence[Concept], count: int, *, seed: int, most: int) -> list[str]:
    """Texts that say random concepts: the public text that is always there. The first do not depend on `count`."""
    found = []
    for i in range(count):
        rng = np.random.default_rng(np.random.SeedSequence([seed, _STREAM, i]))
        found.append(write(concepts, random_said(concepts, rng), rng, most=most))
    return found


def every_sentence(concepts: Sequence[Concept]) -> Iterator[str]:
    """All sentences that `write` can write of these concepts: what is in one of them is in a public source."""
    modifiers = [concept.phrases for concept in concepts if concept.kind == "modifier"]
    ways: list[tuple[str, ...]] = [()]
    ways += [(a,) for own in modifiers for a in own]
    ways += [(a, b) for one, other in permutations(modifiers, 2) for a in one for b in other]
    for concept in concepts:
        for phrase in concept.phrases if concept.kind != "modifier" else ():
            if concept.kind == "statement":
                yield phrase
            elif concept.kind == "topic":
                yield from (_into(template, phrase) for template in _ABOUT)
            else:
                yield from (_into(t, _modified(words, phrase)) for words in ways for t in _SAID)
                yield from (_into(t, _bare(phrase)) for t in _DENIED)


def random_said(concepts: Sequence[Concept], rng: Rng) -> Said:
    """What a public text says: a few findings, some more denied; of topics two to six."""
    said = np.zeros(len(concepts), dtype=np.int8)
    topics = [i for i, concept in enumerate(concepts) if concept.kind == "topic"]
    if topics:
        said[rng.choice(topics, size=int(rng.integers(2, 7)), replace=False)] = 1
    draws = rng.random(len(concepts))
    for i, concept in enumerate(concepts):
        if concept.kind == "finding":
            said[i] = 1 if draws[i] < SAID_OFTEN else -1 if draws[i] < SAID_OFTEN + DENIED_OFTEN else 0
        elif concept.kind == "statement":
            said[i] = draws[i] < 0.35
        elif concept.kind == "modifier":
            said[i] = draws[i] < 0.25
    return said


def _filled(templates: Sequence[str], phrase: str, rng: Rng) -> str:
    return _into(str(rng.choice(templates)), phrase)


def _into(template: str, phrase: str) -> str:
    sentence = template.format(phrase)
    return sentence[0].upper() + sentence[1:]


def _bare(phrase: str) -> str:
    return phrase.removeprefix("a ").removeprefix("an ")


def _modified(words: Sequence[str], phrase: str) -> str:
    return " ".join([*words, _bare(phrase)]) if words else phrase
