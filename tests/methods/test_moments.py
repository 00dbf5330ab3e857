"""Noisy moments by hand: sums over a noisy count, the nearest probabilities, a root with the same variances."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.methods.generators import moments
from prismfl.methods.generators.moments import Queries, Start
from prismfl.nets.columns import Columns
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

COLUMNS = Columns.parse(["n", "b", "c2"])
ROWS = torch.tensor([[0.5, 1.0, 1.0, 0.0], [-0.1, 1.0, 0.0, 1.0], [0.2, -1.0, 1.0, 0.0], [0.2, -1.0, 1.0, 0.0]])
QUIET = Queries(2, 1e-9, 1.0)


def door(x: torch.Tensor, y: torch.Tensor | None = None, *, declared: int | None = None) -> PrivateRecords:
    labels = torch.zeros(len(x), dtype=torch.int64) if y is None else y
    return PrivateRecords(
        Records(x, labels), declared=declared or len(x), classes=2, noise=Key.seed(0).noise(), allow_exact=False
    )


def test_a_mean_is_the_sum_over_the_count() -> None:
    """The row (1, x): two questions count every record twice."""
    sums = moments.ask(door(ROWS), lambda x, y: torch.cat([torch.ones(len(x), 1), x], 1), bound=9.0, queries=QUIET)
    assert torch.allclose(sums.total / sums.count, ROWS.mean(0), atol=1e-4)
    assert sums.count == pytest.approx(8.0, rel=1e-4)


def test_every_question_is_charged_at_the_rate() -> None:
    asked = door(ROWS)
    moments.ask(asked, lambda x, y: torch.ones(len(x), 2), bound=2.0, queries=Queries(3, 1.2, 0.5))
    assert asked.meter.cost == Cost.gaussian(1.2, 0.5, times=3)


def test_under_much_noise_the_declared_size_is_trusted_and_the_count_stays_above_zero() -> None:
    sums = moments.ask(door(ROWS), lambda x, y: torch.ones(len(x), 2), bound=1.0, queries=Queries(1, 1000.0, 1.0))
    assert sums.count >= 500.0
    assert sums.noise <= 2.0


def test_the_start_has_the_means_and_spreads_of_the_records() -> None:
    begin = moments.start(door(ROWS.repeat(50, 1)), COLUMNS, queries=QUIET)
    assert begin.mean[:2].tolist() == pytest.approx([0.2, 0.0], abs=0.05)
    assert begin.mean[2:].tolist() == pytest.approx([0.75, 0.25], abs=0.05)
    assert float(begin.scale[0]) == pytest.approx(float(ROWS[:, 0].std(unbiased=False)), abs=0.05)
    assert begin.scale[1:].tolist() == [1.0, 1.0, 1.0]


def test_the_raw_output_of_a_start_gives_its_mean_back() -> None:
    columns = Columns.parse(["b", "p", "c2", "n"])
    begin = Start(torch.tensor([0.5, 0.3, 0.8, 0.2, -0.4]), torch.ones(5))
    loc = begin.loc(columns)
    assert float(2 * torch.sigmoid(loc[0]) - 1) == pytest.approx(0.5)
    assert float(torch.sigmoid(loc[1])) == pytest.approx(0.3)
    assert torch.softmax(loc[2:4], 0).tolist() == pytest.approx([0.8, 0.2])
    assert float(loc[4]) == pytest.approx(-0.4)


def test_variances_follow_from_means() -> None:
    columns = Columns.parse(["b", "p", "c2", "n"])
    begin = Start(torch.tensor([0.5, 0.3, 0.8, 0.2, -0.4]), torch.ones(5))
    assert begin.variance(columns).tolist() == pytest.approx([0.75, 0.21, 0.16, 0.16, 1.0])


@pytest.mark.parametrize(
    ("weights", "nearest"),
    [([0.5, 0.5], [0.5, 0.5]), ([2.0, 0.0], [1.0, 0.0]), ([0.9, -0.3], [1.0, 0.0]), ([0.7, 0.5], [0.6, 0.4])],
)
def test_the_nearest_probabilities(weights: list[float], nearest: list[float]) -> None:
    assert moments.simplex(torch.tensor(weights)).tolist() == pytest.approx(nearest, abs=2e-3)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=7))
def test_probabilities_are_above_zero_and_sum_to_one(weights: list[float]) -> None:
    found = moments.simplex(torch.tensor(weights, dtype=torch.float64))
    assert float(found.sum()) == pytest.approx(1.0)
    assert float(found.min()) > 0.0


def test_a_root_keeps_the_variances_even_of_what_is_no_covariance() -> None:
    broken = torch.tensor([[1.0, 3.0], [3.0, 4.0]])  # a correlation of 1.5
    half = moments.root(broken)
    assert (half @ half.T).diagonal().tolist() == pytest.approx([1.0, 4.0], rel=1e-4)


def test_a_root_of_a_covariance_is_a_root() -> None:
    fine = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    half = moments.root(fine)
    assert torch.allclose(half @ half.T, fine, atol=1e-5)


def test_labels_are_a_block_behind_the_record() -> None:
    x, y = torch.zeros(2, 3), torch.tensor([1, 0])
    assert moments.with_labels(x, y, 0).shape == (2, 3)
    assert moments.with_labels(x, y, 2)[:, 3:].tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_a_gaussian_asks_no_more_than_it_was_given() -> None:
    asked = door(ROWS.repeat(50, 1))
    fitted = moments.fit_gaussian(asked, COLUMNS, queries=Queries(5, 1.1, 1.0))
    assert asked.meter.cost == Cost.gaussian(1.1, times=5)
    assert {k: tuple(v.shape) for k, v in fitted.items()} == {"mean": (4,), "root": (4, 4)}


def test_drawn_records_are_valid_ones() -> None:
    fitted = moments.fit_gaussian(door(ROWS.repeat(50, 1)), COLUMNS, queries=QUIET)
    made = moments.draw_gaussian(COLUMNS, fitted, 500, torch.Generator().manual_seed(0))
    assert bool((made[:, 0].abs() <= 1).all())
    assert set(made[:, 1].tolist()) == {-1.0, 1.0}
    assert torch.equal(made[:, 2:].sum(1), torch.ones(500))
    assert float((made[:, 1] > 0).float().mean()) == pytest.approx(0.5, abs=0.1)
