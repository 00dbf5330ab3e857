"""Data sets inside installed packages: sizes, ranges and one record by hand."""

from __future__ import annotations

import pytest
import torch

from prismfl.data import DATASETS
from prismfl.data.embedded import read_embedded


def test_digits_are_divided_by_sixteen() -> None:
    """The first digit of scikit-learn's set is a zero whose first row is 0 0 5 13 9 1 0 0."""
    data = read_embedded(DATASETS["digits"], None)
    assert data.y_train[0] == 0
    assert data.x_train[0, 0, 0].tolist() == pytest.approx([0, 0, 5 / 16, 13 / 16, 9 / 16, 1 / 16, 0, 0])
    assert data.x_train.shape[1:] == (1, 8, 8)


@pytest.mark.parametrize(("name", "records"), [("breast-cancer", 569), ("wine-cultivar", 178), ("digits", 1797)])
def test_every_record_is_in_one_part(name: str, records: int) -> None:
    data = read_embedded(DATASETS[name], None)
    assert len(data.y_train) == DATASETS[name].train_size
    assert len(data.y_train) + len(data.y_test) == records


@pytest.mark.parametrize("name", ["breast-cancer", "wine-cultivar"])
def test_tables_lie_between_minus_one_and_one_and_read_back(name: str) -> None:
    data = read_embedded(DATASETS[name], None)
    assert float(data.x_train.min()) >= -1.0
    assert float(data.x_train.max()) <= 1.0
    assert data.schema is not None
    back = data.schema.decode(data.x_train[:2])
    again = data.schema.encode({k: v.tolist() for k, v in back.items()})
    assert torch.allclose(again, data.x_train[:2], atol=1e-2)


def test_a_subset_is_the_same_every_time() -> None:
    one, two = (read_embedded(DATASETS["wine-cultivar"], 30) for _ in range(2))
    assert torch.equal(one.x_train, two.x_train)
    assert len(one.y_train) == 30
    assert len(set(one.y_train.tolist())) == 3


def test_handwritten_digits_come_from_their_package() -> None:
    data = read_embedded(DATASETS["mnist-5k"], 100)
    assert data.x_train.shape == (100, 1, 28, 28)
    assert data.y_train.bincount().tolist() == [10] * 10
    assert float(data.x_train.max()) == 1.0
