"""Attacks on synthetic texts: is a private text nearer to them than another one, and does a planted phrase come out?

Both have a control that succeeds: a generator that copies its texts. Scored against held-out records; for benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prismfl.nets.encoders.text import HashedNgrams

LONGEST = 4  # words of a private phrase that may stand in a synthetic text by chance
_WORD, _ENDS = re.compile(r"\w+"), re.compile(r"[.;:!?]+")
Floats = npt.NDArray[np.float32]


def neighbour_auc(made: Sequence[str], members: Sequence[str], others: Sequence[str]) -> float:
    """How well (AUC) the similarity to the nearest synthetic text tells members from others; 0.5 is guessing."""
    from sklearn.metrics import roc_auc_score

    encoder = HashedNgrams()
    seen = encoder.read(list(made))["ngrams"]
    score = [(encoder.read(list(part))["ngrams"] @ seen.T).max(1) for part in (members, others)]
    truth = np.concatenate([np.ones(len(members)), np.zeros(len(others))])
    return float(roc_auc_score(truth, np.concatenate(score)))


def phrases(texts: Sequence[str], length: int) -> set[tuple[str, ...]]:
    """Every run of so many words within a sentence."""
    found: set[tuple[str, ...]] = set()
    for sentence in (part for text in texts for part in _ENDS.split(text.casefold())):
        words = _WORD.findall(sentence)
        found |= {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}
    return found


def exposed(
    made: Sequence[str], private: Sequence[str], public: Sequence[str] = (), *, length: int = LONGEST + 1
) -> int:
    """How many runs of `length` words of private texts, which are in no public text, stand in synthetic ones."""
    return len((phrases(made, length) & phrases(private, length)) - phrases(public, length))
