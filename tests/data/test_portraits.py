"""Portraits of nobody: repeatable, in range, varied, with a face in the middle."""

from __future__ import annotations

import numpy as np

from prismfl.data.drawing import Pixels
from prismfl.data.portraits import draw_portraits


def drawn(seed: int = 0, count: int = 24, side: int = 16) -> Pixels:
    return draw_portraits(np.random.default_rng(seed), count, side, side)


def test_they_are_repeatable_colour_pictures_in_range() -> None:
    one, again = drawn(), drawn()
    assert one.shape == (24, 16, 16, 3)
    assert np.array_equal(one, again)
    assert one.min() >= 0.0
    assert one.max() <= 1.0


def test_another_seed_is_other_people() -> None:
    assert not np.array_equal(drawn(0), drawn(1))


def test_no_two_are_alike_and_none_is_flat() -> None:
    pictures = drawn()
    assert len({p.tobytes() for p in pictures}) == len(pictures)
    assert pictures.std(axis=(1, 2)).min() > 0.01


def test_the_middle_is_warm_as_skin_is() -> None:
    middle = drawn(count=60)[:, 6:10, 6:10].mean((0, 1, 2))
    assert middle[0] > middle[1] > middle[2]


def test_skin_takes_any_lightness() -> None:
    light = drawn(count=60)[:, 7:10, 7:9].mean((1, 2, 3))
    assert light.max() - light.min() > 0.3


def test_a_picture_need_not_be_square() -> None:
    assert draw_portraits(np.random.default_rng(0), 2, 12, 8).shape == (2, 12, 8, 3)
