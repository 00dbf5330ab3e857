"""Frames side by side: one sensitivity for all parts, whatever a record holds."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.block_frame import BlockFrame, dealt, fit_blocks, shares_of


def fitted(rank: int = 8, shares: tuple[float, ...] = (), quantiles: tuple[float, float] = (0.0, 0.0)) -> BlockFrame:
    g = torch.Generator().manual_seed(0)
    features = torch.randn(200, 11, generator=g) @ torch.randn(11, 11, generator=g)
    return fit_blocks(features, layers=[[3, 2], [6]], shares=shares, rank=rank, power=0.4, quantiles=quantiles)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30, float("nan"), float("inf")])
def test_a_row_is_no_longer_than_one_and_each_part_than_its_share(scale: float) -> None:
    frame = fitted(shares=(3.0, 1.0))
    rows = frame(scale * torch.ones(3, 11))
    assert bool(rows.isfinite().all())
    assert float(rows.norm(dim=1).max()) <= 1 + 1e-5
    for place, share in zip(frame.places(), (0.75, 0.25)):
        assert float(rows[:, place].norm(dim=1).max()) <= share**0.5 + 1e-5


def test_a_part_that_is_missing_is_zeros_and_leaves_the_others_as_they_are() -> None:
    frame, features = fitted(), torch.randn(2, 11)
    lacks = features.clone()
    lacks[:, :5] = float("nan")
    whole, part = frame(features), frame(lacks)
    first, second = frame.places()
    assert not part[:, first].any()
    assert torch.equal(whole[:, second], part[:, second])


def test_coordinates_come_back_as_features_where_nothing_was_clipped() -> None:
    frame = fitted(rank=11, quantiles=(1.0, 1.0))
    features = 0.1 * torch.randn(20, 11, generator=torch.Generator().manual_seed(1))
    rows = frame(features)
    for k, (place, at) in enumerate(zip(frame.places(), (slice(0, 5), slice(5, 11)))):
        assert torch.allclose(frame.back(k, rows[:, place]), features[:, at], atol=1e-3)


def test_ranks_are_dealt_by_shares_and_no_part_gets_more_than_it_has() -> None:
    assert dealt(9, (0.5, 0.25, 0.25), (100, 100, 100)) == [5, 2, 2]
    assert dealt(9, (0.5, 0.25, 0.25), (100, 2, 100)) == [5, 2, 2]
    assert dealt(12, (0.5, 0.5), (3, 100)) == [3, 9]
    assert sum(dealt(12, (0.5, 0.5), (3, 4))) == 12, "what is left over is filled up with zeros"
    with pytest.raises(UserError, match="each of the 3 parts"):
        dealt(2, (0.4, 0.3, 0.3), (9, 9, 9))


def test_shares_sum_to_one() -> None:
    assert shares_of((), 4) == (0.25,) * 4
    assert shares_of((3, 1), 2) == (0.75, 0.25)
    for bad in ((1.0,), (1.0, 0.0), (1.0, -1.0)):
        with pytest.raises(UserError, match="part_shares"):
            shares_of(bad, 2)
