"""Columns as discrete variables: every value has a place, and places give back records that lie in them."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables, cells

WORDS = ["n", "c3", "b", "n"]
FOUND = Variables.of(Columns.parse(WORDS), bins=4, labels=2)


def test_places_of_numbers_choices_binaries_and_the_label() -> None:
    x = torch.tensor([[-1.0, 0, 1, 0, 1, 1.0], [0.1, 1, 0, 0, -1, -0.4]])
    assert FOUND.sizes == (4, 3, 2, 4, 2)
    assert FOUND.label == 4
    assert FOUND.codes(x, torch.tensor([1, 0])).tolist() == [[0, 1, 1, 3, 1], [2, 0, 0, 1, 0]]
    assert FOUND.codes(x, torch.tensor([1, 0]), finer=2)[:, [0, 3]].tolist() == [[0, 7], [4, 2]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38, -3.0, 7.0])
def test_every_value_has_a_place(value: float) -> None:
    codes = FOUND.codes(torch.full((3, 6), value), torch.zeros(3, dtype=torch.int64))
    assert bool((codes >= 0).all())
    assert bool((codes < torch.tensor(FOUND.sizes)).all())


@pytest.mark.parametrize("finer", [1, 5])
def test_records_drawn_from_places_lie_in_them(finer: int) -> None:
    g = torch.Generator().manual_seed(0)
    most = torch.tensor([4 * finer, 3, 2, 4 * finer, 2])
    codes = (torch.rand(500, 5, generator=g) * most).long()
    x = FOUND.records(codes, g, finer=finer)
    assert torch.equal(FOUND.codes(x, codes[:, 4], finer=finer), codes)
    inside = (x[:, 0] + 1) / 2 * 4 * finer - codes[:, 0]
    assert 0.4 < float(inside.mean()) < 0.6, "numbers are drawn inside their bins, not at one end"
    assert float(inside.std()) > 0.2


def test_a_missing_number_is_a_place_of_its_own() -> None:
    found = Variables.of(Columns.parse(["m", "n"]), bins=4, labels=0)
    x = torch.tensor([[0.9, 0.0, 0.0], [0.0, 1.0, 0.0]])
    codes = found.codes(x, torch.zeros(2, dtype=torch.int64), finer=2)
    assert found.sizes == (5, 4)
    assert codes[:, 0].tolist() == [7, 8]
    back = found.records(codes, torch.Generator().manual_seed(0), finer=2)
    assert back[:, 1].tolist() == [0.0, 1.0]
    assert float(back[1, 0]) == 0.0


def test_without_classes_there_is_no_label() -> None:
    found = Variables.of(Columns.parse(["n", "b"]), bins=3, labels=1)
    assert (len(found), found.label, found.sizes) == (2, None, (3, 2))
    assert cells(found.sizes, (0, 1)) == 6
