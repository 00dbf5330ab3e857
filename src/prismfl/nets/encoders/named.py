"""Encoders by name, as a config, a request or a site's list says it. A name runs no code but prismfl's own."""

from __future__ import annotations

from collections.abc import Callable

from prismfl.errors import UserError
from prismfl.nets.encoders import efficientnet, scattering, text
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.joined import Joined
from prismfl.nets.encoders.names import EFFICIENTNET, NAMES, NGRAMS, SCATTERING, Part, name_and_side, parts_of

BUILDERS: dict[str, Callable[[int | None], Encoder]] = {
    SCATTERING: scattering.build,
    EFFICIENTNET: lambda side: efficientnet.build(side) if side else efficientnet.build(),
    NGRAMS: lambda _: text.HashedNgrams(),
}


def named(name: str) -> Encoder:
    """The encoder that a name stands for; "efficientnet-lite0@64" looks at images of another side, and "a+b" is two
    encoders side by side."""
    return built(name, ours)


def built(words: str, build: Callable[[Part], Encoder]) -> Encoder:
    """What `words` stand for, each part made by `build`. A digest that is said must be the one that is found."""
    made = [_checked(part, build(part)) for part in parts_of(words)]
    return made[0] if len(made) == 1 else Joined(made)


def ours(part: Part) -> Encoder:
    """One of our encoders by its name."""
    name, side = name_and_side(part.body)
    found = BUILDERS[name](side)
    found.name = part.body
    return found


def _checked(part: Part, encoder: Encoder) -> Encoder:
    if part.digest is not None and encoder.digest != part.digest:
        raise UserError(
            f"Encoder '{part.body}' has the digest {encoder.digest[:16]}..., not {part.digest[:16]}... as was said."
        )
    return encoder


__all__ = ["NAMES", "built", "named", "ours"]
