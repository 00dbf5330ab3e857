"""How sites are combined so that none decides, and how large an honest release can be: by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.core.payloads import Weights
from prismfl.methods import robust
from tests.methods.hand import TASK


def inbox(*values: float) -> dict[str, dict[str, Weights]]:
    return {f"site-{i}": {"model": Weights({"w": torch.tensor([v, 0.0])})} for i, v in enumerate(values)}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("mean", 22.0), ("median", 3.0), ("trimmed-mean", 3.0), ("clipped-mean", (1 + 2 + 3 + 4 + 6) / 5)],
)
def test_five_sites_of_which_one_is_far(rule: robust.Aggregate, expected: float) -> None:
    """1, 2, 3, 4 and 100: the trim leaves 2, 3, 4; the clip brings 100 to twice the median."""
    found = robust.combine(rule, inbox(1, 2, 3, 4, 100), "model")["w"]
    assert found.tolist() == pytest.approx([expected, 0.0])


@pytest.mark.parametrize("rule", ["mean", "median", "trimmed-mean", "clipped-mean"])
def test_two_sites_are_their_mean_by_any_rule(rule: robust.Aggregate) -> None:
    """Of two sites neither can tell on the other, unless one is more than twice the longer of both: it cannot be."""
    assert robust.combine(rule, inbox(1, 9), "model")["w"][0] == pytest.approx(5.0)


def test_updates_are_measured_from_the_base() -> None:
    base = {"w": torch.tensor([10.0, 0.0])}
    found = robust.combine("clipped-mean", inbox(11, 9, 110), "model", base=base)["w"]
    assert float(found[0]) == pytest.approx((11 + 9 + 12) / 3)


def test_where_nobody_is_long_the_clipped_mean_is_the_mean_bit_for_bit() -> None:
    box = inbox(0.1, 0.2, 0.30000001)
    assert torch.equal(robust.combine("clipped-mean", box, "model")["w"], robust.combine("mean", box, "model")["w"])


def test_a_length_of_numbers_near_the_largest_float_is_finite() -> None:
    assert robust.length({"a": torch.tensor([3e38, 0.0]), "b": torch.tensor([4e38 / 10])}) == pytest.approx(
        math.hypot(3e38, 4e37)
    )


def test_the_upper_median_of_two_is_the_larger() -> None:
    assert robust.upper_median([1.0, 5.0]) == 5.0
    assert robust.upper_median([3.0, 1.0, 2.0]) == 2.0


@given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=9))
def test_no_clipped_length_is_over_twice_the_median(lengths: list[float]) -> None:
    sizes = {f"site-{i}": v for i, v in enumerate(lengths)}
    factors = robust.clip_factors(sizes)
    limit = 2.0 * sorted(lengths)[len(lengths) // 2]
    assert all(0 < factors[s] <= 1 for s in sizes)
    assert all(factors[s] * sizes[s] <= limit * (1 + 1e-9) for s in sizes)
    assert all(factors[s] == 1.0 for s in sizes if sizes[s] <= limit)


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=8))
def test_one_liar_cannot_leave_the_range_of_the_others(honest: list[float]) -> None:
    rows = torch.tensor([*honest, 1e9], dtype=torch.float64)[:, None]
    for rule in ("median", "trimmed-mean"):
        found = float(robust.centre(rule, rows)[0])
        assert min(honest) - 1e-9 <= found <= max(honest) + 1e-9


def test_a_site_that_counts_more_than_twice_the_declared_is_brought_back() -> None:
    """Declared 10: twenty are free, a hundred count as twenty."""
    counts = torch.tensor([[5.0, 5.0], [20.0, 0.0], [60.0, 40.0]])
    assert robust.site_weights(counts, records=10, noise=0.0).tolist() == pytest.approx([1.0, 1.0, 0.2])


def test_a_site_that_counts_far_below_nothing_does_not_count() -> None:
    counts = torch.tensor([[-50.0, -50.0], [-1.0, 0.0]])
    assert robust.site_weights(counts, records=10, noise=1.0).tolist() == [0.0, 1.0]


def test_the_only_holder_of_a_class_keeps_its_weight() -> None:
    held = torch.tensor([[500.0, 4.0], [0.0, 300.0]])
    weights = robust.class_weights(held, records=4, noise=0.0)
    assert weights[0, 0] == 1.0
    assert float(weights[1, 1]) == pytest.approx(4.0 / 300.0)  # as much as all others: twice 4 / 2 classes


def test_nobody_holds_more_records_than_all_declare() -> None:
    assert robust.most_held(TASK) == 3 * 2
    assert robust.most_held(replace(TASK, sites=("a",))) == math.inf
    assert robust.most_held(replace(TASK, sites=("a", "b"))) == 4


def test_the_way_of_noisy_steps_by_hand() -> None:
    """Rate 1: four steps of at most six records of clip 1, over an expected batch of 2, and no noise."""
    most = robust.most_moved(TASK, 10, batch=2.0, clip=1.0, sigma=0.0, steps=4)
    assert most == pytest.approx(1.001 * 4 * 6 / 2)
    assert robust.most_moved(TASK, 10, batch=2.0, clip=math.inf, sigma=0.0) == math.inf


def test_noise_makes_the_way_longer_by_its_norm() -> None:
    quiet, loud = (robust.most_moved(TASK, 10, batch=2.0, clip=1.0, sigma=s) for s in (0.0, 3.0))
    assert loud - quiet == pytest.approx(robust.noise_norm(10, 3.0) / 2)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([3.0, 3.0], None),
        ([700.0, 3.0], "it counts 703 records, where 2 a site are declared"),
        ([3.0, -70.0], "it counts -70 records of a class"),
    ],
)
def test_class_sizes_that_cannot_be(counts: list[float], words: str | None) -> None:
    assert robust.count_fault(torch.tensor(counts), TASK, 1.0) == words


def test_weights_beyond_reach_are_named() -> None:
    assert robust.beyond({"w": torch.tensor([-4.9])}, 5.0) is None
    assert robust.beyond({"w": torch.tensor([-5.1]), "e": torch.zeros(0)}, 5.0) == (
        "'w' has numbers beyond 5, which its training cannot reach"
    )


def test_the_first_fault_is_told_and_later_ones_are_not_looked_for() -> None:
    def never() -> str | None:
        raise AssertionError("looked for")

    assert robust.first_fault(lambda: None, lambda: "here", never) == "here"
    assert robust.first_fault(lambda: None) is None
