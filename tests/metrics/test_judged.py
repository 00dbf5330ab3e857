"""Tables judged as users judge: models trained on synthetic records, distances of tables, rare categories."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prismfl.errors import UserError
from prismfl.metrics.judged import BOOSTED, LINEAR, LOGISTIC, faithful, useful, useful_number
from prismfl.nets.columns import Columns

COLUMNS = Columns.parse(["n", "n", "c4"])


def some_table(n: int, seed: int, *, tied: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """The label is the exclusive or of two signs, which no straight line tells; 5 % of the choices are the last one."""
    g = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, 2, generator=g) - 1
    choice = torch.tensor([0.45, 0.3, 0.22, 0.03]).multinomial(n, True, generator=g)
    y = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long()
    if not tied:
        y = y[torch.randperm(n, generator=g)]
    return torch.cat([x, torch.eye(4)[choice]], 1), y


def test_trees_learn_from_a_synthetic_table_what_a_line_cannot() -> None:
    made, real = some_table(1500, 0), some_table(500, 1)
    found = useful(*made, *real, classes=2)
    assert found[BOOSTED]["auc"] > 97 > 60 > found[LOGISTIC]["auc"]
    assert {"accuracy", "balanced_accuracy", "f1", "average_precision"} <= found[BOOSTED].keys()
    blind = useful(*some_table(1500, 2, tied=False), *real, classes=2)
    assert blind[BOOSTED]["auc"] < 60


def test_one_class_alone_and_no_records() -> None:
    x, y = some_table(50, 0)
    found = useful(x, torch.zeros_like(y), x, y, classes=3)
    assert found[LOGISTIC]["accuracy"] == pytest.approx(100 * float((y == 0).double().mean()), abs=1e-3)
    with pytest.raises(UserError, match="Expected synthetic and real records"):
        useful(x[:0], y[:0], x, y, classes=2)


def test_distances_see_what_is_tied() -> None:
    made, real = some_table(4000, 0), some_table(4000, 1)
    near = faithful(*made, *real, columns=COLUMNS, classes=2)
    apart = faithful(*some_table(4000, 2, tied=False), *real, columns=COLUMNS, classes=2)
    assert near["tv_1"] is not None
    assert apart["tv_1"] is not None
    assert near["tv_1"] < 0.05
    assert abs(near["tv_1"] - apart["tv_1"]) < 0.02, "single columns do not tell"
    assert near["tv_3"] is not None
    assert apart["tv_3"] is not None
    assert apart["tv_3"] > near["tv_3"] + 0.05, "three columns do"


def test_rare_categories_that_are_gone_are_missed() -> None:
    (x, y), real = some_table(4000, 0), some_table(4000, 1)
    assert faithful(x, y, *real, columns=COLUMNS, classes=2)["rare_categories"] == 1.0
    gone = x[:, 5] < 0.5
    assert faithful(x[gone], y[gone], *real, columns=COLUMNS, classes=2)["rare_categories"] == 0.0
    numbers = Columns.parse(["n", "n"])
    assert faithful(x[:, :2], y, real[0][:, :2], real[1], columns=numbers, classes=2)["rare_categories"] is None


def test_a_number_is_judged_by_r2_and_the_error_in_its_unit() -> None:
    draws = np.random.default_rng(0)
    x, at = draws.uniform(-1, 1, (2000, 3)), draws.uniform(-1, 1, (500, 3))
    told, true = (100 * part[:, 0] + 50 * part[:, 1] * (part[:, 2] > 0) for part in (x, at))
    found = useful_number(x, told, at, true)
    assert found.keys() == {LINEAR, BOOSTED}
    assert 0.5 < found[LINEAR]["r2"] < 0.97 < found[BOOSTED]["r2"]
    assert found[BOOSTED]["mae"] < 8 < found[LINEAR]["mae"] < 30
    gone = np.where(np.arange(2000) % 2, np.nan, told)
    assert useful_number(x, gone, at, np.where(np.arange(500) % 2, np.nan, true))[LINEAR]["records"] == 250
    assert useful_number(x, told, at, np.full(500, np.nan)) == useful_number(x[:0], told[:0], at, true) == {}
