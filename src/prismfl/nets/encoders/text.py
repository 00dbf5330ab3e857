"""Public encoders of text: hashed n-grams, declared concepts, and static vectors of words from a file.

A text comes as a row of bytes (see `data.texts`), each byte v as v / 255, filled up with zeros. Nothing here is fitted
on a text: the vocabulary is declared, the projection follows from a hash, the vectors stand in a file.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.names import NGRAMS

WIDTH = 256  # numbers that hashed n-grams become
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[.;:!?]+")
_NO = frozenset(["no", "not", "without", "none", "denies", "absent", "nor", "cannot"])
_BUT = frozenset(["but", "however", "although", "except"])
_FUNCTION_WORDS = (
    "a an and are as at be been but by for from had has have in is it its of on or our than that the their there these "
    "this to was we were which with who der die das und ist im mit von zu le la les des et de un une el los en"
)
_COMMON = frozenset(_FUNCTION_WORDS.split())
Floats = npt.NDArray[np.float32]


class Said(Protocol):
    """A declared concept, as far as it is looked for."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def kind(self) -> str:
        """ "finding" if it may be denied."""

    @property
    def group(self) -> str:
        """What it is counted together with."""

    @property
    def stems(self) -> tuple[str, ...]:
        """Beginnings of words that speak of it; "=" marks a whole word."""


def texts_of(rows: torch.Tensor) -> list[str]:
    """The texts of rows of bytes as numbers in [0, 1]."""
    cells = (rows.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return [row.tobytes().split(b"\0", 1)[0].decode("utf-8", "replace") for row in cells]


class TextEncoder(Encoder):
    """An encoder that reads texts; each by itself. For subclasses: `read` gives the rows of a list of texts."""

    sees = "text"

    def forward(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """One row of numbers a text, for each layer."""
        found = self.read(texts_of(rows))
        return {layer: torch.from_numpy(numbers).to(rows.device) for layer, numbers in found.items()}

    def read(self, texts: Sequence[str]) -> dict[str, Floats]:
        """The rows of texts. For subclasses."""
        raise NotImplementedError


class HashedNgrams(TextEncoder):
    """Words, pairs of words and parts of words: each has signs of its own, which follow from its hash (a fixed random
    projection), and a text is their sum, of length one. Any language; nothing is learnt."""

    layers = ("ngrams",)
    trained_on = "nothing: fixed hashes"

    def __init__(self) -> None:
        super().__init__()
        self.name = NGRAMS

    def read(self, texts: Sequence[str]) -> dict[str, Floats]:
        """The sums."""
        found = np.zeros((len(texts), WIDTH), dtype=np.float32)
        for row, text in zip(found, texts):
            counts = Counter(ngrams_of(text))
            if counts:
                signs = np.stack([_signs(gram) for gram in counts])
                row[:] = np.log1p(np.fromiter(counts.values(), dtype=np.float32)) @ signs
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return {"ngrams": found / np.maximum(norms, 1e-6)}

    @property
    def digest(self) -> str:
        """Of the words that define it."""
        return hashlib.sha256(repr((NGRAMS, self.layers, WIDTH, sorted(_COMMON))).encode()).hexdigest()


def ngrams_of(text: str) -> list[str]:
    """Words without the commonest, pairs of neighbours, and the beginnings of long words."""
    words = [word for word in _WORD.findall(text.casefold()) if word not in _COMMON]
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return [*words, *pairs, *(f"{word[:5]}~" for word in words if len(word) > 5)]


@lru_cache(maxsize=50_000)
def _signs(gram: str) -> npt.NDArray[np.int8]:
    raw = np.frombuffer(hashlib.blake2b(gram.encode(), digest_size=WIDTH // 8).digest(), dtype=np.uint8)
    return (2 * np.unpackbits(raw).astype(np.int8) - 1).astype(np.int8)


class DeclaredConcepts(TextEncoder):
    """How often a text says each declared concept, and how often it denies it, as log(1 + n); and the same of all
    concepts of a group together."""

    trained_on = "nothing: a declared vocabulary"

    def __init__(self, name: str, concepts: Sequence[Said]) -> None:
        super().__init__()
        self.name, self.concepts, self.layers = name, tuple(concepts), ("concepts", "groups")
        self.columns, groups = concept_columns(self.concepts), list(dict.fromkeys(c.group for c in concepts))
        together = np.zeros((len(self.columns), 2 * len(groups)), dtype=np.float32)
        for j, (place, denied) in enumerate(self.columns):
            together[j, 2 * groups.index(self.concepts[place].group) + denied] = 1
        self.together = together[:, together.any(0)]
        self._find = finder(self.concepts)

    def read(self, texts: Sequence[str]) -> dict[str, Floats]:
        """The counts."""
        counts = np.stack([self._counts(text) for text in texts])
        return {"concepts": np.log1p(counts), "groups": np.log1p(counts @ self.together)}

    def _counts(self, text: str) -> Floats:
        counts = np.zeros((len(self.concepts), 2), dtype=np.float32)
        for place, denied in said_in(text, self._find):
            counts[place, int(denied)] += 1
        flat = [counts[i, j] for i, j in self.columns]
        return np.array(flat, dtype=np.float32)

    @property
    def digest(self) -> str:
        """Of the vocabulary."""
        told = [(concept.name, concept.kind, concept.group, concept.stems) for concept in self.concepts]
        return hashlib.sha256(repr((self.name, told)).encode()).hexdigest()


def concept_columns(concepts: Sequence[Said]) -> tuple[tuple[int, int], ...]:
    """(concept, 0 said or 1 denied) of each number: only a finding can be denied."""
    said = [(i, 0) for i in range(len(concepts))]
    return (*said, *((i, 1) for i, concept in enumerate(concepts) if concept.kind == "finding"))


Find = Callable[[str, str], tuple[int, ...]]


def finder(concepts: Sequence[Said]) -> Find:
    """What tells which concepts a word, with the word behind it, speaks of."""
    begins: dict[str, set[int]] = {}
    whole: dict[str, set[int]] = {}
    pairs: dict[str, list[tuple[str, int]]] = {}
    for i, concept in enumerate(concepts):
        for stem in concept.stems:
            first, _, second = stem.partition(" ")
            if second:
                pairs.setdefault(first.removeprefix("="), []).append((second, i))
            elif stem.startswith("="):
                whole.setdefault(stem[1:], set()).add(i)
            else:
                begins.setdefault(stem, set()).add(i)
    longest = max((len(stem) for stem in begins), default=0)

    @lru_cache(maxsize=50_000)
    def single(word: str) -> frozenset[int]:
        found = set(whole.get(word, ()))
        for end in range(1, min(longest, len(word)) + 1):
            found |= begins.get(word[:end], set())
        return frozenset(found)

    def find(word: str, behind: str) -> tuple[int, ...]:
        found = single(word)
        if word in pairs:
            found |= {i for second, i in pairs[word] if behind.startswith(second)}
        return tuple(found)

    return find


def said_in(text: str, find: Find) -> list[tuple[int, bool]]:
    """Each mention of a concept, and whether it is denied: it stands behind a "no" in its sentence."""
    found = []
    for sentence in _SENTENCE.split(text.casefold()):
        words, denied = _WORD.findall(sentence), False
        for word, behind in zip(words, [*words[1:], ""]):
            denied = (denied or word in _NO) and word not in _BUT
            found += [(place, denied) for place in find(word, behind)]
    return found


class WordVectors(TextEncoder):
    """The mean of static vectors of the words of a text; a word that has none says nothing."""

    layers = ("mean",)
    pretrained = True

    def __init__(self, name: str, vectors: Floats, vocabulary: Sequence[str], *, digest: str, trained_on: str) -> None:
        super().__init__()
        self.name, self.trained_on, self.file_digest = name, trained_on, digest
        self.places: Mapping[str, int] = {word: i for i, word in enumerate(vocabulary)}
        self.vectors = vectors

    def read(self, texts: Sequence[str]) -> dict[str, Floats]:
        """The means, of length one."""
        found = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        for row, text in zip(found, texts):
            places = [self.places[w] for w in _WORD.findall(text.casefold()) if w in self.places and w not in _COMMON]
            if places:
                row[:] = self.vectors[places].mean(0)
        return {"mean": found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-6)}

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return self.file_digest
