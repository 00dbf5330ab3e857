"""What image generators share: trust in classes, labels in proportion, bytes that travel."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.core.payloads import Synthesizer
from prismfl.errors import UserError
from prismfl.methods.generators import images
from tests.laws.world import make_job

TASK = make_job("dp-gan").task


def test_trust_is_equal_by_class_and_by_size_among_the_sites() -> None:
    counts = torch.tensor([[30.0, 0.0], [10.0, 50.0]])
    assert torch.allclose(images.trust(counts, 1.0), torch.tensor([[0.375, 0.0], [0.125, 0.5]]))


def test_a_class_that_could_be_noise_gets_nothing() -> None:
    """Below three standard deviations."""
    counts = torch.tensor([[2.9, 100.0]])
    assert images.trust(counts, 1.0).tolist() == [[0.0, 1.0]]
    assert images.trust(counts, 0.5).tolist() == [[0.5, 0.5]]


def test_where_nothing_stands_out_all_are_trusted_alike() -> None:
    assert torch.allclose(images.trust(torch.zeros(2, 2), 1.0), torch.full((2, 2), 0.25))


@given(st.lists(st.floats(-5, 50), min_size=3, max_size=3), st.lists(st.floats(-5, 50), min_size=3, max_size=3))
def test_trust_sums_to_one_and_is_never_negative(one: list[float], two: list[float]) -> None:
    share = images.trust(torch.tensor([one, two]), 1.0)
    assert float(share.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(share.min()) >= 0.0


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [([0.5, 0.5], 4, [2, 2]), ([1.0, 0.0], 3, [3, 0]), ([0.2, 0.3, 0.5], 10, [2, 3, 5]), ([0.0, 0.0], 5, [0, 0])],
)
def test_labels_in_proportion(share: list[float], count: int, expected: list[int]) -> None:
    labels = images.labels_of(torch.tensor(share), count)
    assert labels.bincount(minlength=len(share)).tolist() == expected
    assert torch.equal(labels, labels.sort().values)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda s: sum(s) > 1e-3), st.integers(0, 200))
def test_there_are_exactly_as_many_labels_as_asked(share: list[float], count: int) -> None:
    labels = images.labels_of(torch.tensor(share), count)
    assert len(labels) == count
    exact = torch.tensor(share).double() / sum(share) * count
    assert bool(((labels.bincount(minlength=len(share)) - exact).abs() <= 1.001).all())


def test_bytes_are_rounded_and_bounded() -> None:
    assert images.to_bytes(torch.tensor([-1.0, 0.0, 0.5, 1.0, 9.0])).tolist() == [0, 0, 128, 255, 255]


@pytest.mark.parametrize("value", range(0, 256, 51))
def test_a_byte_that_travelled_is_the_same_byte(value: int) -> None:
    assert int(images.to_bytes(torch.tensor([value / 255.0]))[0]) == value


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ((12,), "Image generators need square images, got shape (12,); pad or crop the images first."),
        ((1, 8, 12), "Image generators need square images, got shape (1, 8, 12); pad or crop the images first."),
        (
            (1, 4, 4),
            "Image generators need a side that is a multiple of 4 and at least 8, got 4; pad the images first.",
        ),
        (
            (3, 30, 30),
            "Image generators need a side that is a multiple of 4 and at least 8, got 30; pad the images first.",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(shape: tuple[int, ...], line: str) -> None:
    with pytest.raises(UserError) as error:
        images.check_images(replace(TASK, shape=shape))
    assert str(error.value) == line


def test_a_site_whose_training_stopped_says_so_by_zeros() -> None:
    counts = torch.tensor([3.0, 4.0, 5.0])
    assert images.said(counts, None) is counts
    assert images.said(counts, "lower lr").tolist() == [0.0, 0.0, 0.0]
    items = {"generator": Synthesizer({"counts": torch.zeros(3)})}
    assert images.possible(TASK, items, noise=1.0, reach=1.0) == (
        "its training has stopped at weights that are not finite, and was charged; lower lr"
    )
    assert images.possible(TASK, items, noise=0.0, reach=1.0) is None  # without noise, zeros are an honest count
