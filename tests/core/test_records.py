"""Records kept as bytes are the same records as the floats that they stand for."""

from __future__ import annotations

import numpy as np
import torch

from prismfl.core.records import Records, as_floats, unit_prints

BYTES = torch.arange(256, dtype=torch.uint8).reshape(16, 1, 4, 4)


def records(x: torch.Tensor, *, unit: bool = False) -> Records:
    return Records(x, torch.arange(len(x)) % 3, torch.arange(len(x)) % 5 if unit else None)


def test_bytes_are_255ths_bit_for_bit() -> None:
    every = np.arange(256, dtype=np.float32) / np.float32(255)
    assert np.array_equal(as_floats(BYTES).flatten().numpy(), every)
    assert BYTES.dtype == torch.uint8, "what is kept stays as it is"


def test_other_numbers_are_left_alone() -> None:
    for x in (torch.rand(3, 2), torch.rand(2, 1, 4, 4).double(), torch.arange(4)):
        assert as_floats(x) is x


def test_a_records_name_does_not_follow_from_how_it_is_kept() -> None:
    """Else one picture of 16 bits, which makes all of them floats, would draw new numbers for all the others."""
    many = BYTES.repeat(9, 1, 1, 1)  # more than are named at a time, with equal ones among them
    for unit in (False, True):
        names = records(many, unit=unit).identities
        assert np.array_equal(names, records(as_floats(many), unit=unit).identities)
        assert len(np.unique(names, axis=0)) == len(many)


def test_a_sample_keeps_its_names_and_its_bytes() -> None:
    whole = records(BYTES, unit=True)
    some, rows = whole.identities, torch.tensor([5, 3])
    taken = whole.take(rows)
    assert taken.x.dtype == torch.uint8
    assert np.array_equal(taken.identities, some[[5, 3]])
    assert len(list(unit_prints(taken))) == 2


def test_floats_are_the_same_records() -> None:
    whole = records(BYTES, unit=True)
    found = whole.floats()
    assert torch.equal(found.x, as_floats(BYTES))
    assert found.y is whole.y
    assert found.unit is whole.unit
    assert np.array_equal(found.identities, whole.identities)
