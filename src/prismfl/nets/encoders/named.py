"""Encoders by name, as a config, a request or a site's list says it. A name runs no code but prismfl's own."""

from __future__ import annotations

import difflib

from prismfl.errors import UserError
from prismfl.nets.encoders import efficientnet
from prismfl.nets.encoders.base import Encoder

NAMES = (efficientnet.NAME,)


def named(name: str) -> Encoder:
    """The encoder that a name stands for; "efficientnet-lite0@64" looks at images of another side."""
    base, _, side = name.partition("@")
    if base not in NAMES:
        near = difflib.get_close_matches(base, NAMES, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(NAMES)}."
        raise UserError(f"Unknown encoder '{name}'; {hint}")
    if side and not (side.isdigit() and 32 <= int(side) <= 512):
        raise UserError(f"Expected the side of encoder '{base}' as 32 to 512 pixels, as in '{base}@64', got '{side}'.")
    return efficientnet.build(int(side)) if side else efficientnet.build()
