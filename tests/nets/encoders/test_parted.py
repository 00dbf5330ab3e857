"""The encoder of several parts: each part by its own, and what is missing is not a number."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.parted import Parted, Place, TableColumns, part_of
from prismfl.nets.encoders.scattering import Scattering
from prismfl.nets.encoders.text import HashedNgrams


def parted() -> Parted:
    return Parted(
        [
            Place("image", 0, (1, 8, 8), Scattering()),
            Place("text", 64, (20,), HashedNgrams()),
            Place("row", 84, (2,), TableColumns()),
        ]
    )


def test_each_part_is_looked_at_by_its_own_encoder() -> None:
    rows = torch.rand(5, 86)
    found = parted().activations(rows)
    assert list(found) == ["image/order0", "image/order1", "image/order2", "text/ngrams", "row/columns"]
    alone = Scattering().activations(rows[:, :64].reshape(-1, 1, 8, 8))
    assert torch.equal(found["image/order1"], alone["order1"])
    assert {part_of(layer) for layer in found} == {"image", "text", "row"}


def test_what_a_record_lacks_is_not_a_number_and_touches_no_other_record() -> None:
    rows = torch.rand(4, 86).clamp_min(0.1)
    rows[1, :64] = 0
    rows[2, 64:84] = 0
    found = parted().activations(rows)
    assert bool(found["image/order0"][1].isnan().all())
    assert bool(found["text/ngrams"][2].isnan().all())
    for layer in found:
        assert not found[layer][[0, 3]].isnan().any()


def test_columns_are_the_numbers_that_their_bytes_stand_for() -> None:
    found = TableColumns().activations(torch.tensor([[1.0, 128.0, 255.0]]) / 255)["columns"]
    assert torch.allclose(found, torch.tensor([[-1.0, 0.0, 1.0]]), atol=1e-5)


def test_rows_of_another_width_are_refused_and_the_digest_knows_the_places() -> None:
    with pytest.raises(UserError, match="86 bytes"):
        parted()(torch.rand(2, 85))
    other = Parted([Place("text", 0, (20,), HashedNgrams())])
    assert len({parted().digest, other.digest, Parted([Place("text", 0, (21,), HashedNgrams())]).digest}) == 3
