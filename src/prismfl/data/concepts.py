"""Vocabularies of declared concepts: what a text is read by, and what a report is written with. Public, ours, fixed.

A concept has stems: a word that begins with one speaks of it ("=" marks a whole word, two words must follow one
another). A finding may be denied ("no effusion"), which is another thing than not being mentioned. Its phrases are what
the grammar writes; a statement is a whole sentence, a modifier goes before a finding, a topic is what an article is
about. Concepts of one group are also counted together. Written from general knowledge of radiology and medicine, not
from any collection of reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from prismfl.errors import UserError

ConceptKind = Literal["finding", "statement", "modifier", "topic"]


@dataclass(frozen=True)
class Concept:
    """A declared concept: its name, the stems that speak of it, and the phrases that it is written with."""

    name: str
    kind: ConceptKind
    group: str
    stems: tuple[str, ...]
    phrases: tuple[str, ...]


VOCABULARIES = ("chest", "medicine")  # each a file beside this one


@cache
def vocabulary(name: str) -> tuple[Concept, ...]:
    """The concepts of a vocabulary by its name; "" is none."""
    if name == "":
        return ()
    if name not in VOCABULARIES:
        raise UserError(f"Unknown vocabulary of concepts '{name:.40}'; known: {', '.join(VOCABULARIES)}, or none.")
    found = []
    for line in (files("prismfl.data") / f"concepts_{name}.txt").read_text("utf-8").strip().splitlines():
        called, kind, stems, phrases = (part.strip() for part in line.split("|"))
        kind, _, group = kind.partition(":")
        found.append(
            Concept(called, kind, group or kind, _listed(stems, ","), _listed(phrases, ";"))  # type: ignore[arg-type]
        )
    return tuple(found)


def _listed(words: str, sign: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(sign))
