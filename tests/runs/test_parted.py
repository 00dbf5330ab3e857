"""What looks at which part: those that were asked for, the built-in one elsewhere, and an error for no part."""

from __future__ import annotations

import pytest

from prismfl.data.declared_parts import DRAWN_PATIENTS, XRAY_REPORTS
from prismfl.data.parts import Parts, RecordPart
from prismfl.errors import UserError
from prismfl.nets.encoders.joined import Joined
from prismfl.nets.encoders.named import named
from prismfl.nets.encoders.scattering import Scattering
from prismfl.nets.encoders.text import DeclaredConcepts, HashedNgrams
from prismfl.runs.parted import part_seen, parted


def test_every_part_has_an_encoder_by_itself() -> None:
    found = parted(None, DRAWN_PATIENTS)
    assert [type(place.encoder).__name__ for place in found.places] == [
        "Scattering",
        "DeclaredConcepts",
        "TableColumns",
    ]
    assert [place.start for place in found.places] == [0, 784, 1784]
    free = Parts((RecordPart("text", "text", (50,), language="de"),))
    assert isinstance(parted(None, free).places[0].encoder, HashedNgrams), "without a vocabulary, any language"
    assert parted(found, DRAWN_PATIENTS) is found


def test_an_encoder_that_was_asked_for_takes_its_own_part() -> None:
    found = parted(named("scattering@16+ngrams"), DRAWN_PATIENTS)
    assert [place.encoder.name for place in found.places] == ["scattering@16", "ngrams", "columns"]
    both = parted(Joined([DeclaredConcepts("chest", ()), HashedNgrams()]), XRAY_REPORTS)
    assert isinstance(both.places[0].encoder, Joined)


def test_an_encoder_for_no_part_is_an_error() -> None:
    with pytest.raises(UserError, match="which these records have not"):
        parted(Scattering(), XRAY_REPORTS)
    assert part_seen(named("ngrams")) == "text"
    assert part_seen(named("scattering+ngrams")) == "text"
    assert part_seen(Scattering()) == "image"
    with pytest.raises(UserError, match="has no side"):
        named("ngrams@3")
