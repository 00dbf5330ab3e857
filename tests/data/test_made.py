"""Synthetic features as a table: several rows a unit, what is the same in it, new ids, rules that hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.data import Column, Schema
from prismfl.data.constraints import Constraint
from prismfl.data.made import made_table, spare
from prismfl.rng import Key

SEX = Column("sex", "binary", categories=("f", "m"), per_unit=True)
BORN = Column("born", min=1900, max=2020, integer=True, per_unit=True)
SEEN = Column("seen", min=1900, max=2024, integer=True)
VISITS = Schema(
    (SEX, BORN, SEEN),
    "ill",
    ("no", "yes"),
    unit="patient",
    unit_rows=4,
    ids=("record", "patient"),
    constraints=(Constraint("born", "seen"),),
)
SHARES = (0.4, 0.3, 0.2, 0.1)


def drawn(count: int, schema: Schema = VISITS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """What a generator of units would draw: the number of rows by its shares, sex by the number of rows."""
    g = np.random.default_rng(seed)
    rows = g.choice(4, count, p=SHARES)
    x = np.zeros((count, schema.width), dtype=np.float32)
    x[:, 0] = np.where(g.random(count) < 0.2 + 0.2 * rows, 1.0, -1.0)
    x[:, 1:3] = g.uniform(-1, 1, (count, 2))
    if schema.rows_column is not None:
        x[np.arange(count), 3 + rows] = 1.0
    return torch.from_numpy(x), torch.from_numpy((x[:, 0] > 0).astype(np.int64))


def table(rows: int, **given: Any) -> dict[str, Any]:
    return made_table(VISITS, *drawn(spare(VISITS, rows)), key=Key.seed(1), rows=rows, **given)


def test_units_have_as_many_rows_as_was_released() -> None:
    made = table(3000)
    assert {len(cells) for cells in made.values()} == {3000}
    sizes = Counter(Counter(made["patient"].tolist()).values())
    units = sum(sizes.values())
    assert [sizes[n] / units for n in (1, 2, 3, 4)] == pytest.approx(SHARES, abs=0.04)
    assert made["patient"].tolist() == sorted(made["patient"].tolist())
    assert made["patient"][0] == 1


def test_so_many_units_come_with_all_their_rows() -> None:
    made = made_table(VISITS, *drawn(spare(VISITS, 500)), key=Key.seed(1), units=500)
    sizes = Counter(made["patient"].tolist())
    assert len(sizes) == 500
    assert sum(sizes.values()) == len(made["sex"])
    assert [Counter(sizes.values())[n] / 500 for n in (1, 2, 3, 4)] == pytest.approx(SHARES, abs=0.08)
    alone = replace(VISITS, unit=None, unit_rows=None, ids=())
    assert len(made_table(alone, *drawn(70, alone), key=Key.seed(1), units=500)["sex"]) == 70


def test_what_is_the_same_in_a_unit_stays_the_same_and_the_rest_does_not() -> None:
    made = table(3000)
    by_unit: dict[int, list[int]] = {}
    for row, unit in enumerate(made["patient"].tolist()):
        by_unit.setdefault(unit, []).append(row)
    several = [rows for rows in by_unit.values() if len(rows) > 1]
    for name in ("sex", "born"):
        assert all(len(set(made[name][rows].tolist())) == 1 for rows in several)
    assert np.mean([len(set(made["seen"][rows].tolist())) > 1 for rows in several]) > 0.9


def test_no_row_comes_twice_in_a_unit() -> None:
    fine = replace(VISITS, columns=(SEX, BORN, replace(SEEN, integer=False, decimals=6)), constraints=())
    made = made_table(fine, *drawn(spare(fine, 2000), fine), key=Key.seed(1), rows=2000)
    rows = Counter(zip(made["patient"].tolist(), made["seen"].tolist()))
    assert max(rows.values()) == 1


def test_rules_hold_within_units_too() -> None:
    made = table(3000)
    assert (made["born"] <= made["seen"]).all()


def test_further_rows_are_those_of_units_alike() -> None:
    """The label follows the sex, and the sex is the unit's: a further row of another sex would break that."""
    made = table(3000)
    assert np.mean((made["ill"] == "yes") == (made["sex"] == "m")) > 0.99


def test_ids_are_new_numbers() -> None:
    made = table(50)
    assert made["record"].tolist() == list(range(1, 51))


def test_without_a_number_of_rows_every_row_is_a_unit() -> None:
    schema = Schema((SEX, BORN, SEEN), "ill", ("no", "yes"), unit="patient")
    made = made_table(schema, *drawn(20, schema), key=Key.seed(1))
    assert made["patient"].tolist() == list(range(1, 21))
    assert "rows of patient" not in made


def test_a_table_without_label() -> None:
    assert "ill" not in table(10, labelled=False)


def test_the_same_key_gives_the_same_table() -> None:
    first, second = table(200), table(200)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_the_number_of_rows_is_the_units_own() -> None:
    """It is counted in a unit's own rows alone, and cut at what was declared."""
    cells: dict[str, list[object]] = {"sex": ["f"] * 8, "born": [1950] * 8, "seen": [2000] * 8}
    ids = ["a", "b", "a", "b", "b", "b", "b", "c"]
    x = VISITS.encode({**cells, "patient": ids})
    assert (x[:, 3:].argmax(1) + 1).tolist() == [2, 4, 2, 4, 4, 4, 4, 1]
    without = VISITS.encode({**{k: v[:3] for k, v in cells.items()}, "patient": ["a", "a", "c"]})
    assert torch.equal(without[0], x[0])
    assert (VISITS.encode(cells)[:, 3:].argmax(1) == 0).all()  # nobody says whose rows they are


def test_many_rows_are_told_by_a_number() -> None:
    schema = Schema((SEX,), "ill", ("no", "yes"), unit="patient", unit_rows=100)
    x = schema.encode({"sex": ["f"] * 60, "patient": ["a"] * 50 + [str(i) for i in range(10)]})
    assert x.shape == (60, 2)
    made = made_table(schema, x[[0, *range(50, 60)]], torch.zeros(11, dtype=torch.int64), key=Key.seed(0))
    assert made["patient"].tolist() == [1] * 11
