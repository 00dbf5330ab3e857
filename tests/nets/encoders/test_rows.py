"""Rows through a public encoder: of one width and norm, and each record's own, bit for bit."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.rows import WIDTH, encoded_rows
from tests.nets.encoders.two_layers import TinyEncoder

PUBLIC = torch.rand(60, 1, 9, 9, generator=torch.Generator().manual_seed(1))
RECORDS = torch.rand(23, 1, 9, 9, generator=torch.Generator().manual_seed(2))


def test_a_row_is_the_same_alone_and_in_any_company() -> None:
    rows = encoded_rows(TinyEncoder(), PUBLIC)
    together = rows.one_by_one(RECORDS)
    for i in (0, 5, 22):
        assert torch.equal(rows.one_by_one(RECORDS[i : i + 1])[0], together[i])
        assert torch.equal(rows.one_by_one(torch.cat([PUBLIC[:7], RECORDS[i:]]))[7], together[i])
    assert torch.equal(rows.one_by_one(RECORDS.flip(0)).flip(0), together)
    assert torch.allclose(rows(RECORDS), together, atol=1e-5)


def test_rows_have_the_width_and_norm_one_at_most() -> None:
    made = encoded_rows(TinyEncoder(), PUBLIC).one_by_one(RECORDS)
    assert made.shape == (23, WIDTH)
    assert float(made.norm(dim=1).max()) <= 1.0 + 1e-6
    assert float(made.var(0).sum()) > 0.01
    assert encoded_rows(TinyEncoder(), PUBLIC).one_by_one(RECORDS[:0]).shape == (0, WIDTH)


def test_no_layer_outweighs_the_others() -> None:
    """A layer that is ten times as loud changes next to nothing: each is standardised by public images."""

    class Loud(TinyEncoder):
        def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            found = super().look(images)
            return {**found, "last": 10.0 * found["last"]}

    loud = Loud()
    loud.name = "loud"
    plain, made = (encoded_rows(e, PUBLIC).one_by_one(RECORDS) for e in (TinyEncoder(), loud))
    assert torch.allclose(plain @ plain.T, made @ made.T, atol=0.02)


def test_a_record_that_breaks_the_encoder_is_a_row_like_others_and_no_error() -> None:
    rows = encoded_rows(TinyEncoder(), PUBLIC)
    bad = RECORDS[:3].clone()
    bad[1] = float("nan")
    made = rows.one_by_one(bad)
    assert bool(torch.isfinite(made).all())
    assert torch.equal(made[0], rows.one_by_one(RECORDS[:1])[0])


def test_public_images_that_break_it_are_one_clear_line() -> None:
    bad = PUBLIC.clone()
    bad[3] = float("inf")
    with pytest.raises(UserError, match="'tiny' gives numbers that are not finite"):
        encoded_rows(TinyEncoder(), bad)


def test_it_is_made_once_for_the_same_images_and_encoder() -> None:
    first = encoded_rows(TinyEncoder(), PUBLIC)
    assert encoded_rows(TinyEncoder(), PUBLIC.clone()) is first
    assert encoded_rows(TinyEncoder(seed=1), PUBLIC) is not first
    assert encoded_rows(TinyEncoder(), PUBLIC[:50]) is not first


def test_whoever_waits_is_told() -> None:
    told: list[int] = []
    encoded_rows(TinyEncoder(), PUBLIC).one_by_one(torch.rand(230, 1, 9, 9), told.append)
    assert told == [100, 200]
