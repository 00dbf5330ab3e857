"""Public images that nobody had to collect: repeatable, in range, in any size, prefix-stable."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.data.procedural import draw

KINDS = ["strokes", "silhouettes", "leaves", "portraits"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_channels_first_in_range_and_not_constant(kind: str, channels: int) -> None:
    images = draw(kind, shape=(channels, 8, 8), count=5, seed=3)
    assert images.shape == (5, channels, 8, 8)
    assert images.dtype == np.float32
    assert images.min() >= 0.0
    assert images.max() <= 1.0
    assert images.reshape(5, -1).std(1).min() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_and_the_first_ones_do_not_depend_on_the_number(kind: str) -> None:
    few, more = (draw(kind, shape=(1, 8, 8), count=n, seed=1) for n in (3, 7))
    assert np.array_equal(few, more[:3])
    assert not np.array_equal(few, draw(kind, shape=(1, 8, 8), count=3, seed=2))


def test_no_two_strokes_are_alike_even_beyond_one_batch() -> None:
    images = draw("strokes", shape=(1, 8, 8), count=300, seed=0)
    assert len({image.tobytes() for image in images}) == 300


def test_grey_kinds_have_equal_channels() -> None:
    images = draw("strokes", shape=(3, 8, 8), count=2, seed=0)
    assert np.array_equal(images[:, 0], images[:, 1])
    assert np.array_equal(images[:, 0], images[:, 2])


def test_colour_kinds_become_grey_by_luminance() -> None:
    colour = draw("leaves", shape=(3, 8, 8), count=2, seed=0)
    grey = draw("leaves", shape=(1, 8, 8), count=2, seed=0)
    expected = 0.299 * colour[:, 0] + 0.587 * colour[:, 1] + 0.114 * colour[:, 2]
    assert np.allclose(grey[:, 0], expected, atol=1e-5)


def test_the_global_seed_is_left_alone() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    draw("silhouettes", shape=(1, 8, 8), count=2, seed=0)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]
