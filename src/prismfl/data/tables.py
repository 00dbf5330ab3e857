"""CSV and Parquet tables with a label column, encoded by a declared schema."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prismfl.data.columns import Columns, read_columns
from prismfl.data.faults import Faults
from prismfl.data.found import Bounds, Found
from prismfl.data.ids import id_column
from prismfl.data.prints import bag_prints, row_prints
from prismfl.data.schema import Column, Schema, listed, plain, value_of
from prismfl.errors import UserError

TEST_WORDS = frozenset({"1", "true", "test"})


@dataclass(frozen=True)
class Roles:
    """The columns that are no features: the label, the ids, and the mark of the test part."""

    label: str | None = None
    unit: str | None = None
    natural: str | None = None
    test: str | None = None


def read_table(
    path: Path,
    *,
    roles: Roles,
    classes: Sequence[str] | None,
    schema: Schema | None,
    bounds: Bounds | None,
    faults: Faults,
) -> Found:
    """The records of a table file, encoded by its schema, with their labels, ids and test part."""
    table = read_columns(path, faults)
    return found_table(table, path, roles=roles, classes=classes, schema=schema, bounds=bounds, faults=faults)


def found_table(
    table: Columns,
    path: Path | str,
    *,
    roles: Roles,
    classes: Sequence[str] | None,
    schema: Schema | None,
    bounds: Bounds | None,
    faults: Faults,
) -> Found:
    """The same for columns that are in hand; `path` says whose they are."""
    target = roles.label or (schema.label if schema else None)
    if target is None:
        raise UserError(f"Expected a label column for {path}: give --label (key: label), one of {listed(table)}.")
    others = {"unit": roles.unit, "natural": roles.natural, "test": roles.test}
    for role, name in {"label": target, **others}.items():
        if name is not None and name not in table:
            raise UserError(missing_column(name, table, path, role=role))
    taken = {target, *others.values()}
    declared = _declared(path, table, target, classes=classes, schema=schema, bounds=bounds, roles=roles)
    for name in declared.names:
        if name not in table:
            raise UserError(missing_column(name, table, path))
    if not table[target] and not faults.lenient:
        raise UserError(f"Expected records in {path}, got only a header.")
    try:
        # Labels first: how many rows a unit has is counted in records that are not left out.
        y = declared.encode_labels(table[target], faults).numpy()
        x = declared.encode(table, faults).numpy()
    except UserError as error:
        raise error.within(path) from None
    known = {*taken, *declared.names, *declared.ids, declared.unit}
    unused = [name for name in table if name not in known]
    ids = {name: id_column(table[name], name, faults) for name in (roles.unit, roles.natural) if name is not None}
    kept = faults.kept(len(y))
    marked = _marked(table, roles.test, len(y))[kept]
    train, held = kept[~marked], kept[marked]
    used = {name: [cells[i] for i in train] for name, cells in table.items()}
    prints = row_prints({name: cells for name, cells in used.items() if name != target})
    # By every cell (whichever of them is the label), and by the features alone, without names.
    bag = bag_prints(list(zip(*(cells for name, cells in used.items() if name not in (target, roles.unit)))))
    return Found(
        "table",
        x[train],
        y[train],
        declared.classes,
        prints,
        unit=None if roles.unit is None else ids[roles.unit][train],
        natural=None if roles.natural is None else ids[roles.natural][train],
        schema=declared,
        notices=ignored(unused, declared),
        test=None if roles.test is None else (x[held], y[held]),
        faults=faults,
        more=(row_prints(used), bag),
    )


def missing_column(name: str, table: Columns, path: Path | str, *, role: str = "") -> str:
    """What to say of a column that is declared but not in the file."""
    near = difflib.get_close_matches(name, table, n=1)
    numbers = bool(table) and all(value_of(column) is not None for column in table)
    hint = f"; did you mean '{near[0]}'?" if near else "; is the header line missing?" if numbers else "."
    option = {"natural": "--split natural"}.get(role, f"--{role}")
    what = f"{role} column '{name}' ({option})" if role else f"column '{name}' of the schema"
    return f"Expected {what} in {path}, got columns {listed(table)}{hint}"


def ignored(unused: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """What to tell about columns that are not used: those that are not declared, and free text."""
    strange = [name for name in unused if name not in schema.left_out]
    texts = [name for name in unused if name in schema.left_out]
    found = [f"Ignored columns that are not in the schema: {listed(strange)}."] if strange else []
    return (*found, *([f"Left out, being free text: {listed(texts)}."] if texts else []))


def _marked(table: Columns, name: str | None, count: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The rows of the test part, by their own cell in the column that was named."""
    if name is None:
        return np.zeros(count, dtype=bool)
    return np.array([plain(value).lower() in TEST_WORDS for value in table[name]], dtype=bool)


def _declared(
    path: Path | str,
    table: Columns,
    target: str,
    *,
    classes: Sequence[str] | None,
    schema: Schema | None,
    bounds: Bounds | None,
    roles: Roles,
) -> Schema:
    """The schema to encode with: the given one, or numeric columns that share the declared bounds."""
    names = tuple(plain(name) for name in classes or ())
    if schema is not None:
        return replace(schema.predicting(target, names), unit=roles.unit or schema.unit)
    if not names:
        raise UserError(
            f"Expected declared classes for label '{target}' of {path}: give --classes a,b (key: classes); never "
            "taken from the data."
        )
    if bounds is None:
        raise UserError(
            f"Expected declared columns for {path}: give --schema (key: schema_file), or at a site bounds; none is "
            "taken from the data."
        )
    features = [name for name in table if name not in (target, roles.unit, roles.natural, roles.test)]
    return Schema(tuple(Column(n, min=bounds[0], max=bounds[1]) for n in features), target, names, unit=roles.unit)
