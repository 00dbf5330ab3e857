"""The records of a run: who holds which, named once, and a digest that sees a moved record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from prismfl.data import Dataset, Spec
from prismfl.runs.records import parts_digest, raw_records, records_of

SPEC = Spec("t", "table", (2,), ("a", "b"), 4, "none", "here")
DATA = Dataset(
    SPEC,
    torch.arange(8).float().reshape(4, 2),
    torch.tensor([0, 1, 0, 1]),
    torch.zeros(0, 2),
    torch.zeros(0, dtype=torch.int64),
    prints_train=[bytes([i]) * 32 for i in range(4)],
)


def test_a_site_takes_its_rows_with_labels_and_units() -> None:
    own = replace(DATA, unit_train=np.array([5, 5, 6, 7]))
    found = records_of(own, np.array([2, 0]))()
    assert found.x.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert found.y.tolist() == [0, 0]
    assert found.unit is not None
    assert found.unit.tolist() == [6, 5]
    assert records_of(DATA, np.array([1]))().unit is None


def test_records_are_named_once_for_all_rounds() -> None:
    take = records_of(DATA, np.array([0, 1]))
    assert take().identities is take().identities


def test_raw_records_are_content_and_label() -> None:
    one, two = raw_records(records_of(DATA, np.array([0, 1]))())
    assert one[:8] == np.array([0.0, 1.0], dtype=np.float32).tobytes()
    assert (one[8:], two[8:]) == (bytes(4), (1).to_bytes(4, "little"))


def test_the_digest_of_a_deal_sees_a_moved_record_and_not_an_order() -> None:
    deal = parts_digest(DATA, [np.array([0, 1]), np.array([2, 3])])
    assert deal == parts_digest(DATA, [np.array([1, 0]), np.array([3, 2])])
    assert deal != parts_digest(DATA, [np.array([0, 1, 2]), np.array([3])])
    assert deal != parts_digest(DATA, [np.array([2, 3]), np.array([0, 1])])


def test_named_data_have_no_such_digest() -> None:
    assert parts_digest(replace(DATA, prints_train=None), [np.array([0])]) is None
