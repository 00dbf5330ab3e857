"""What decides a record's site: its unit, or the record with its label; and nothing of it in a traceback."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from prismfl.data.spec import Dataset, Spec

SPEC = Spec("t", "table", (2,), ("a", "b"), 3, "none", "here")
DATA = Dataset(
    SPEC,
    torch.tensor([[0.11, 0.22], [0.33, 0.44], [0.55, 0.66]]),
    torch.tensor([0, 1, 1]),
    torch.zeros(0, 2),
    torch.zeros(0, dtype=torch.int64),
)


def test_a_named_set_has_no_identities() -> None:
    assert DATA.identity is None


def test_a_record_is_its_print_and_its_label() -> None:
    own = replace(DATA, prints_train=[b"x" * 32, b"y" * 32, b"y" * 32])
    found = own.identity
    assert found is not None
    assert found[1] == found[2] == b"y" * 32 + (1).to_bytes(4, "little")
    assert found[0] == b"x" * 32 + bytes(4)


def test_a_unit_goes_before_the_record() -> None:
    own = replace(DATA, prints_train=[b"x" * 32] * 3, unit_train=np.array([7, 7, 9]))
    found = own.identity
    assert found == [(7).to_bytes(8, "little"), (7).to_bytes(8, "little"), (9).to_bytes(8, "little")]


def test_no_record_is_in_what_a_traceback_shows() -> None:
    assert "0.11" not in repr(DATA)
    assert "tensor" not in repr(DATA)
