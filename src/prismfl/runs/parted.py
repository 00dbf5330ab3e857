"""What looks at the parts of a record: the encoders that were asked for, and the built-in one for every other part."""

from __future__ import annotations

from prismfl.data.parts import Parts, RecordPart
from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.joined import Joined
from prismfl.nets.encoders.parted import Parted, Place, TableColumns
from prismfl.nets.encoders.scattering import Scattering
from prismfl.nets.encoders.text import DeclaredConcepts, HashedNgrams


def parted(given: Encoder | None, parts: Parts) -> Parted:
    """One encoder of all parts. Each of those given looks at the part that it is for; one for no part is an error."""
    if isinstance(given, Parted):
        return given
    single = [part for part in given.parts if isinstance(part, Encoder)] if isinstance(given, Joined) else []
    asked = single or ([] if given is None else [given])
    for encoder in asked:
        if all(part.kind != encoder.sees for part in parts):
            raise UserError(f"Encoder '{encoder.name:.80}' looks at {encoder.sees}, which these records have not.")
    places, start = [], 0
    for part in parts:
        own = [encoder for encoder in asked if encoder.sees == part.kind] or _built_in(part)
        places.append(Place(part.name, start, part.shape, own[0] if len(own) == 1 else Joined(own)))
        start += part.width
    return Parted(places)


def _built_in(part: RecordPart) -> list[Encoder]:
    if part.kind == "image":
        return [Scattering()]
    if part.kind == "table":
        return [TableColumns()]
    return [DeclaredConcepts(part.concepts, part.vocabulary)] if part.vocabulary else [HashedNgrams()]


def part_seen(encoder: Encoder) -> str:
    """What an encoder, or the first of several that is no encoder of images, looks at."""
    inner = [part for part in encoder.parts if isinstance(part, Encoder)] if isinstance(encoder, Joined) else [encoder]
    return next((one.sees for one in inner if one.sees != "image"), "image")
