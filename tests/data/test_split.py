"""Fixed public splits: places in [0, 1), strata in proportion, a data set from its parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismfl.data.spec import Spec
from prismfl.data.split import assemble, divide, place_of, stratified, take_out


def spec(train_size: int, kind: str = "table") -> Spec:
    shape = (1,) if kind == "table" else (1, 1, 1)
    return Spec("t", kind, shape, ("a", "b"), train_size, "none", "here")  # type: ignore[arg-type]


@given(st.text(max_size=20), st.binary(max_size=20))
def test_a_place_lies_between_zero_and_one_and_follows_from_its_path(name: str, content: bytes) -> None:
    name = name.encode("utf-8", "ignore").decode()
    assert 0.0 <= place_of(name, content) < 1.0
    assert place_of(name, content) == place_of(name.encode(), content)


def test_paths_are_not_glued_together() -> None:
    assert place_of("ab", "c") != place_of("a", "bc") != place_of("abc")


def test_places_are_spread_evenly() -> None:
    places = [place_of("x", str(i)) for i in range(4000)]
    counts = np.histogram(places, bins=4, range=(0, 1))[0]
    assert counts.tolist() == pytest.approx([1000] * 4, abs=120)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.floats(0, 1))
def test_strata_are_exact_disjoint_and_in_proportion(labels: list[int], part: float) -> None:
    y = np.array(labels, dtype=np.int64)
    held = int(part * len(y))
    kept, out = stratified(y, held)
    assert len(out) == held
    assert sorted([*kept.tolist(), *out.tolist()]) == list(range(len(y)))
    for c in set(labels):
        assert abs((y[out] == c).sum() - (y == c).sum() * held / len(y)) <= 1


def test_strata_are_spread_through_the_file() -> None:
    """Every third of nine records of one class."""
    assert stratified(np.zeros(9, dtype=np.int64), 3)[1].tolist() == [2, 5, 8]


def test_a_set_without_a_test_part_is_divided() -> None:
    x, y = np.arange(10)[:, None], np.arange(10) % 2
    (train, _), (test, labels) = divide(spec(8), x, y)
    assert (len(train), len(test)) == (8, 2)
    assert sorted(labels.tolist()) == [0, 1]


def test_pixels_are_divided_by_their_top_and_tables_are_not() -> None:
    x, y = np.full((2, 1, 1, 1), 51, dtype=np.uint8), np.array([0, 1])
    found = assemble(spec(2, "image"), ((x, y), (x, y)), subset=None)
    assert torch.allclose(found.x_train, torch.full((2, 1, 1, 1), 0.2))
    assert found.x_train.dtype == torch.float32
    assert found.y_train.dtype == torch.int64
    rows = np.full((2, 1), 51.0)
    assert float(assemble(spec(2), ((rows, y), (rows, y)), subset=None).x_test[0, 0]) == 51.0


def test_a_subset_changes_the_declared_size_and_leaves_the_test_part() -> None:
    x, y = np.arange(10, dtype=np.float32)[:, None], np.arange(10) % 2
    found = assemble(spec(10), ((x, y), (x, y)), subset=4)
    assert (found.spec.train_size, len(found.y_train), len(found.y_test)) == (4, 4, 10)
    assert found.y_train.bincount().tolist() == [2, 2]


def test_a_set_that_is_not_as_declared_is_a_mistake_of_ours() -> None:
    x, y = np.zeros((3, 1)), np.zeros(3, dtype=np.int64)
    with pytest.raises(AssertionError, match="t: declared 4 records, found 3"):
        assemble(spec(4), ((x, y), (x, y)), subset=None)


@pytest.mark.parametrize("shape", [(1,), (1, 2, 2)])
def test_taking_rows_out_keeps_both_in_order(shape: tuple[int, ...]) -> None:
    """More rows than are moved at a time; the first, the last, runs and single ones are held."""
    x = np.arange(200 * np.prod(shape)).reshape(200, *shape)
    for held in (np.arange(200) % 3 == 0, np.arange(200) < 150, np.arange(200) > 190, np.zeros(200, dtype=bool)):
        rest, out = take_out(x.copy(), held)
        assert np.array_equal(rest, x[~held])
        assert np.array_equal(out, x[held])


def test_pictures_that_stay_are_not_copied() -> None:
    x = np.zeros((100, 1, 2, 2), dtype=np.uint8)
    rest, out = take_out(x, np.arange(100) % 2 == 0)
    assert np.shares_memory(rest, x)
    assert not np.shares_memory(out, x)
    x.setflags(write=False)
    assert not np.shares_memory(take_out(x, np.arange(100) % 2 == 0)[0], x), "what may not be written is copied"
