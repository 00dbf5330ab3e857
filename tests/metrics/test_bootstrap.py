"""Records drawn again: as many as there are, in proportion, the same each time."""

from __future__ import annotations

import numpy as np

from prismfl.metrics import bootstrap


def test_drawn_matrices_hold_as_many_records_and_no_new_cell() -> None:
    confusion = np.array([[30, 10], [0, 60]])
    drawn = bootstrap.drawn_matrices(confusion)
    assert drawn.shape == (bootstrap.RESAMPLES, 2, 2)
    assert (drawn.sum((1, 2)) == 100).all()
    assert (drawn[:, 1, 0] == 0).all()
    assert np.abs(drawn.mean(0) - confusion).max() < 1.5
    assert drawn[:, 0, 1].std() > 1


def test_drawn_weights_are_draws_with_replacement() -> None:
    parts = list(bootstrap.drawn_weights(50, 300))
    weights = np.concatenate(parts, axis=1)
    assert weights.shape == (50, 300)
    assert (weights.sum(0) == 50).all()
    assert 0.3 < (weights == 0).mean() < 0.43  # 1 / e of the records are left out


def test_many_records_are_drawn_some_at_a_time() -> None:
    sizes = [part.size for part in bootstrap.drawn_weights(bootstrap.AT_ONCE // 2, 3)]
    assert max(sizes) <= bootstrap.AT_ONCE
    assert len(sizes) == 2


def test_an_interval_is_the_middle_of_the_draws() -> None:
    assert bootstrap.interval(np.arange(101.0)) == [2.5, 97.5]
    assert bootstrap.interval(np.array([1.0, np.nan, np.nan])) is None


def test_too_much_work_gives_no_interval_rather_than_a_rough_one() -> None:
    assert bootstrap.affordable(10) == bootstrap.RESAMPLES
    assert bootstrap.affordable(bootstrap.MOST_WORK // 150) == 150
    assert bootstrap.affordable(bootstrap.MOST_WORK // 99) == 0
