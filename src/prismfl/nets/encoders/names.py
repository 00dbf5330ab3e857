"""The words that stand for a public encoder: names of ours, joined by "+", and digests behind "=". Light to import.

A name runs no code but prismfl's own, so a request or a sent folder may say it. What stands for code (pkg.mod:build) or
for a file is told apart here and built elsewhere.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from prismfl.errors import UserError

SCATTERING, EFFICIENTNET, NGRAMS = "scattering", "efficientnet-lite0", "ngrams"
NAMES = (SCATTERING, EFFICIENTNET, NGRAMS)
SIDES = {SCATTERING: (8, 64), EFFICIENTNET: (32, 512)}
MOST_PARTS = 4
OWN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SIDE = re.compile(r"[1-9][0-9]{0,2}")


class Part(NamedTuple):
    """One encoder of those that stand side by side: what it is, and the SHA-256 that it must have, if one is said."""

    body: str
    digest: str | None = None


def parts_of(words: str) -> tuple[Part, ...]:
    """The encoders that stand side by side in `words`."""
    parts = tuple(pinned(one) for one in words.split("+"))
    if len(parts) > MOST_PARTS:
        raise UserError(f"Expected at most {MOST_PARTS} encoders side by side, got {len(parts)}.")
    if len({part.body for part in parts}) != len(parts):
        raise UserError(f"An encoder stands twice in '{words:.80}'; once is enough.")
    return parts


def pinned(words: str) -> Part:
    """One encoder, and the digest behind its last "="."""
    body, equals, digest = words.rpartition("=")
    return Part(body, digest) if equals and _DIGEST.fullmatch(digest) else Part(words)


def is_ours(body: str) -> bool:
    """Whether a part is one of our encoders by its name, whatever its side."""
    return body.partition("@")[0] in NAMES


def name_and_side(body: str) -> tuple[str, int | None]:
    """One of our encoders, and the side that images are brought to for it: "efficientnet-lite0@64"."""
    name, at, side = body.partition("@")
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(NAMES)}."
        raise UserError(f"Unknown encoder '{body:.80}'; {hint}")
    if at and name not in SIDES:
        raise UserError(f"Encoder '{name}' reads texts and has no side, got '{body:.80}'.")
    low, high = SIDES.get(name, (0, 0))
    if at and not (_SIDE.fullmatch(side) and low <= int(side) <= high):
        raise UserError(
            f"Expected the side of encoder '{name}' as {low} to {high} pixels, as in '{name}@64', got '{side:.20}'."
        )
    return name, int(side) if at else None
