"""Central images by hand: what one record adds, what the sums are read as."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.methods.generators.central import Central
from prismfl.privacy.cost import Cost
from prismfl.rng import Key


def central(**changes: Any) -> Central:
    plain: dict[str, Any] = {
        "kind": "mean",
        "image": (1, 4, 4),
        "classes": 2,
        "side": 2,
        "queries": 1,
        "batch": 100.0,
        "sigma": 0.0,
        "bound": 1.0,
    }
    return Central(**{**plain, **changes})


def door(x: torch.Tensor, y: torch.Tensor, declared: int | None = None) -> PrivateRecords:
    return PrivateRecords(
        Records(x, y), declared=declared or len(x), classes=2, noise=Key.seed(0).noise(), allow_exact=False
    )


def test_a_record_is_its_small_picture_and_a_count_in_the_block_of_its_class() -> None:
    """A white picture at bound 1 has norm 1 over four pixels: half each, shared 0.9 to 0.1 with the count."""
    row = central().rows(torch.ones(1, 1, 4, 4), torch.tensor([1]))[0]
    much, little = math.sqrt(0.9), math.sqrt(0.1)
    assert row.tolist() == pytest.approx([0.0] * 5 + [much / 2] * 4 + [little])


def test_a_dim_picture_keeps_its_brightness_and_a_bright_one_is_brought_to_norm_one() -> None:
    dim, bright = (central(bound=0.5).rows(torch.full((1, 1, 4, 4), v), torch.tensor([0]))[0] for v in (0.25, 1.0))
    assert float(dim[:4].norm()) == pytest.approx(math.sqrt(0.9) * 0.5)
    assert float(bright.norm()) == pytest.approx(1.0)


def test_values_outside_the_domain_are_brought_into_it() -> None:
    wild, white = (central().rows(torch.full((1, 1, 4, 4), v), torch.tensor([0])) for v in (50.0, 1.0))
    assert torch.equal(wild, white)


@pytest.mark.parametrize(("kind", "blocks", "width"), [("mean", 2, 5), ("mode", 2, 4 * 6 + 1), ("bucket", 2 * 8, 5)])
def test_blocks_and_widths_of_the_three_kinds(kind: str, blocks: int, width: int) -> None:
    one = central(kind=kind)
    assert (one.blocks, one.width) == (blocks, width)
    rows = one.rows(torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 1]))
    assert rows.shape == (3, blocks * width)
    assert bool((rows.norm(dim=1) <= 1 + 1e-6).all())


def test_each_question_is_charged() -> None:
    asked = door(torch.rand(8, 1, 4, 4), torch.arange(8) % 2)
    sums = central(queries=3, batch=4.0, sigma=1.5).ask(asked)
    assert sums.shape == (3, 2, 5)
    assert asked.meter.cost == Cost.gaussian(1.5, 0.5, times=3)


def test_counts_are_the_classes_sizes_without_noise() -> None:
    one = central()
    y = torch.tensor([0, 0, 0, 1])
    sums = one.ask(door(torch.rand(4, 1, 4, 4), y))
    assert one.counts(sums, records=4).tolist() == pytest.approx([3.0, 1.0], rel=1e-4)


def test_counts_of_a_sample_are_scaled_up_by_its_rate() -> None:
    """Sums of half the records stand for twice as many."""
    one = central(batch=2.0)
    sums = torch.zeros(1, 2, 5)
    sums[:, :, -1] = math.sqrt(0.1)
    assert one.counts(sums, records=4).tolist() == pytest.approx([2.0, 2.0])


def test_a_class_of_equal_pictures_comes_back() -> None:
    one = central(sigma=1e-6)
    x = torch.cat([torch.full((6, 1, 4, 4), 0.25), torch.full((6, 1, 4, 4), 0.75)])
    y = torch.tensor([0] * 6 + [1] * 6)
    images, labels = one.images(one.ask(door(x, y)))
    assert labels.tolist() == [0, 1]
    assert images.shape == (2, 1, 4, 4)
    assert images.mean((1, 2, 3)).tolist() == pytest.approx([0.25, 0.75], abs=1e-3)


def test_a_class_that_does_not_stand_out_is_left_out() -> None:
    one = central(sigma=1.0)
    images, labels = one.images(torch.zeros(1, 2, 5))
    assert len(images) == len(labels) == 0
    assert images.shape == (0, 1, 4, 4)


def test_the_noise_of_a_count_follows_from_the_share_of_the_count() -> None:
    assert central(sigma=2.0).count_noise == pytest.approx(2.0 / math.sqrt(0.1))
    four = replace(central(sigma=2.0), queries=4)
    assert four.total_noise(records=100) == pytest.approx(four.count_noise / 2)
    assert four.total_noise(records=100, sites=9) == pytest.approx(3 * four.count_noise / 2)
