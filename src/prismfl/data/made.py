"""Synthetic features as a table that looks like the one declared: rules kept, units with several rows, new ids.

All of it is post-processing of what was released, for every generator alike, and costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prismfl.data.constraints import Cells, RuleKeeper
from prismfl.data.schema import Schema
from prismfl.rng import Key

if TYPE_CHECKING:
    import torch

PARTS = 4  # of a number that is the same in a unit: rows of units alike in it may stand for each other
SPARE = 3  # rows to draw for each that is wanted, where rows are put together to units

Codes = npt.NDArray[np.int64]


def spare(schema: Schema, rows: int) -> int:
    """How many rows to draw so that `rows` can be put together."""
    return rows if schema.rows_column is None else SPARE * rows


def made_table(
    schema: Schema,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    key: Key,
    rows: int | None = None,
    units: int | None = None,
    labelled: bool = True,
) -> Cells:
    """The cells of each column, as they are written: the unit's and other ids are new numbers.

    `rows` is how many come out (all that were drawn by default), or `units` how many units with all their rows, where
    a unit may have several. Without a label there is no such column.
    """
    draws = key.child("table").numpy()
    keeper = RuleKeeper({column.name: column for column in schema.encoded}, schema.constraints, draws)
    constant = [column.name for column in schema.columns if column.per_unit and schema.rows_column is not None]
    values, labels = keeper.enforce(schema.values(x), fixed=constant), y.detach().cpu().numpy()
    count = len(labels) if rows is None else rows
    if units is not None and schema.rows_column is not None:
        count = int(_sizes(schema, values)[:units].sum())
    unit: Codes = np.arange(1, count + 1)
    if schema.rows_column is not None:
        values, labels, unit = _in_units(schema, values, labels, count, draws)
        values = keeper.enforce(values, fixed=constant)
    cells = {name: column[:count] for name, column in schema.written(values).items()}
    if labelled and schema.target is None:
        cells[schema.label] = np.asarray(schema.classes)[labels[:count]]
    if schema.unit is not None:
        cells = {schema.unit: unit, **cells}
    return {**cells, **{name: np.arange(1, count + 1) for name in schema.ids if name != schema.unit}}


def _in_units(
    schema: Schema, values: Cells, labels: Codes, count: int, draws: np.random.Generator
) -> tuple[Cells, Codes, Codes]:
    """The first rows become units of as many rows as they say; further rows are those of units like them.

    A drawn row stands for a unit (each counts once), so units are the rows in their order. Their further rows come from
    rows that say the same number and are alike in what is the same in a unit; from others only where there are none.
    """
    size = _sizes(schema, values)
    units = int(np.searchsorted(np.cumsum(size), count)) + 1
    base = np.repeat(np.arange(min(units, len(size))), size[:units])[:count]
    first = np.concatenate([[True], base[1:] != base[:-1]]) if len(base) else np.zeros(0, dtype=bool)
    source = base.copy()
    source[~first] = _others(schema, values, labels, base[~first], draws)
    constant = {column.name for column in schema.encoded if column.per_unit}
    found = {name: cells[base if name in constant else source] for name, cells in values.items()}
    return found, labels[base if schema.label_per_unit else source], base + 1


def _sizes(schema: Schema, values: Cells) -> Codes:
    column = schema.rows_column
    assert column is not None
    told = values[column.name]
    found: Codes = (told if column.is_number else told + 1).astype(np.int64)
    return np.maximum(found, 1)


def _others(schema: Schema, values: Cells, labels: Codes, base: Codes, draws: np.random.Generator) -> Codes:
    """For each of these rows another row of a unit like it, by three looks from near to far.

    Rows alike stand in a ring in random order; a unit takes those that follow its own, so that none comes twice in it.
    """
    constant = [_coarse(values[column.name], number=column.is_number) for column in schema.encoded if column.per_unit]
    label = [labels] if schema.label_per_unit else []
    looks = [np.stack([*constant, *label], 1), constant[-1][:, None], np.zeros((len(labels), 1), dtype=np.int64)]
    step = _places(base) + 1
    found, left = base.copy(), np.ones(len(base), dtype=bool)
    for look in looks:
        _, group, size = np.unique(look, axis=0, return_inverse=True, return_counts=True)
        group, mixed = group.ravel(), draws.permutation(len(labels))
        order, start = mixed[np.argsort(group[mixed], kind="stable")], np.cumsum(size) - size
        place = np.empty(len(labels), dtype=np.int64)
        place[order] = np.arange(len(labels)) - start[group[order]]
        mine = group[base]
        takes = left & (size[mine] > step)
        at = start[mine] + (place[base] + step) % size[mine]
        found[takes] = order[at[takes]]
        left &= ~takes
    return found


def _places(units: Codes) -> Codes:
    """The place of each row among those of its unit, which follow each other."""
    changes = np.flatnonzero(np.concatenate([[True], units[1:] != units[:-1]])) if len(units) else np.zeros(0, int)
    sizes = np.diff(np.append(changes, len(units)))
    return np.arange(len(units)) - np.repeat(changes, sizes)


def _coarse(values: npt.NDArray[Any], *, number: bool) -> Codes:
    """Categories as they are, numbers in a few parts of equal size."""
    if not number:
        return values.astype(np.int64)
    known = values[~np.isnan(values)]
    edges = np.quantile(known, np.linspace(0, 1, PARTS + 1)[1:-1]) if len(known) else np.zeros(0)
    return np.where(np.isnan(values), -1, np.searchsorted(edges, values))
