"""A synthetic table from a private one: read by a declared schema, trained through the door, charged, certified."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from prismfl import runtime
from prismfl.core.once import Holder
from prismfl.core.records import Records
from prismfl.data import DATASETS, load
from prismfl.data.cells import number_of
from prismfl.data.ids import unit_codes
from prismfl.data.made import made_table, spare
from prismfl.data.prints import bag_prints, row_prints, vector_prints
from prismfl.data.schema import EVERY, Column, Schema, is_missing, listed, plain
from prismfl.data.schema_draft import HINTS, Columns, load_columns, look_of
from prismfl.data.schema_file import parse_any, read_content, schema_words
from prismfl.data.table_files import can_write, certificate_path, table_bytes
from prismfl.data.tables import ignored, missing_column
from prismfl.errors import UserError
from prismfl.files.atomic import write_atomically
from prismfl.files.fresh import check_place
from prismfl.rng import Key
from prismfl.runs.planning import large_delta
from prismfl.synth.frames import own_settings
from prismfl.synth.synthesizer import Synthesizer
from prismfl.synth.ways import read_sets, table_method

Warn = Callable[[str], None]
FEW = 10
BATCH, SMALL = 1024, 5000
MOST_BYTES = 8 * 2**30  # of an encoded table
WRONG = ("date", "time", "text", "categorical", "comma")  # what a plain number does not look like
TABLE_METHODS = {"dp-marginals": "dp-marginals", "dp-copula": "ddp-vae", "ddp-vae": "ddp-vae"}
"""What makes a synthetic table, and the method that it is a way of."""
COPULA: dict[str, Any] = {
    "synthesizers": ("dp-copula",),
    "queries": 10,
    "start": 5,
    "rate": 1.0,
    "count_share": 0.4,
    "balance": "noised",
}
WITHOUT = (
    "The extra 'tables' is not installed, so the copula is used; for noisy marginals: pip install 'prismfl[tables]'."
)


@dataclass(frozen=True)
class Table:
    """A private table, encoded by its declaration. `labelled` is False where the schema declares no label."""

    name: str
    schema: Schema
    labelled: bool
    order: tuple[str, ...]
    holder: Holder

    @property
    def classes(self) -> tuple[str, ...]:
        """The declared classes, or the one class "all" where there is no label, or a number is predicted."""
        return self.schema.classes if self.labelled else EVERY


def synth_table(
    data: str,
    *,
    schema: str | Path | None,
    out: Path,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    unit: str | None = None,
    records: int | None = None,
    about: int | None = None,
    rows: int | None = None,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    force: bool = False,
    sets: Sequence[str] = (),
    method: str = "ddp-vae",
    seed: int | None = None,
    warn: Warn = lambda _: None,
    **options: Any,
) -> dict[str, Any]:
    """Write a synthetic table with the same columns and types to `out`, and its certificate beside it.

    `label`, `classes`, `unit` and `records` win over the schema's, `about` is the number of records where neither says
    it. `keep` are the columns to take alone, `drop` those to leave out. What lies at `out` already is replaced only
    with `force`, and that is asked before anything is charged. `method` is one of TABLE_METHODS;
    `options` are those of `Synthesizer`.
    """
    runtime.tune(1)
    can_write(out)
    _refuse_existing([out, certificate_path(out)], force=force)
    check_place(out)
    if rows is not None and rows < 1:
        raise UserError(f"Expected rows >= 1, got {rows}.")
    if method not in TABLE_METHODS:
        raise UserError(f"Unknown method '{method}' for a table; choose one of {', '.join(TABLE_METHODS)}.")
    way = TABLE_METHODS[method]
    _, more = read_sets(way, sets)
    given = {"label": label, "classes": classes and tuple(plain(name) for name in classes), "unit": unit}
    told = {key: value for key, value in given.items() if value not in (None, "record")}
    table = read_private(data, schema, told=told, keep=keep, drop=drop, warn=warn)
    size = _declared_size(table, records, about)
    if (line := large_delta(options.get("delta"), size)) is not None:
        warn(line)
    defaults = {} if way == "dp-marginals" else COPULA if method == "dp-copula" else _defaults(size, more)
    settings = {**defaults, **more, **own_settings(way, table.schema)}
    synthesizer = Synthesizer(
        method=way, records=size, classes=table.classes, seed=seed, **options, **settings
    ).fit_records(table.holder, data=table.name, unit=table.schema.unit or "record")
    cells = _drawn(table, synthesizer, size, rows, seed)
    content = table_bytes(cells, out, table.schema)
    write_atomically(out, content)
    written = {"out": out.name, "rows": len(next(iter(cells.values()))), "sha256": hashlib.sha256(content).hexdigest()}
    columns = schema_words(table.schema)
    if not table.labelled and table.schema.target is None:
        columns = {key: value for key, value in columns.items() if key not in ("label", "classes")}
    found = {**synthesizer.certificate(), **written, "table": columns}
    write_atomically(certificate_path(out), (json.dumps(found, indent=2) + "\n").encode())
    return {**found, "out": str(out), "ledger": str(synthesizer.ledger_path)}


def preferred(warn: Warn = lambda _: None) -> str:
    """What `prismfl synth` makes a table with unless it is told: the best that is installed, and it says which."""
    if table_method() == "dp-marginals":
        return "dp-marginals"
    warn(WITHOUT)
    return "dp-copula"


def read_private(
    data: str,
    schema: str | Path | None,
    *,
    told: Mapping[str, Any] = MappingProxyType({}),
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    warn: Warn = lambda _: None,
) -> Table:
    """A user's file with its schema, or a named table (its training part). `told` wins over the schema."""
    if data in DATASETS:
        found = load(data)
        assert found.schema is not None
        if keep or drop:
            raise UserError(
                f"Expected no --keep and no --drop for the named table {data}; they are for your own files."
            )
        order = (*found.schema.names, found.schema.label)
        holder = Holder(Records(found.x_train, found.y_train), vector_prints(found.x_train.numpy()), data)
        return Table(data, found.schema, True, order, holder)
    if schema is None:
        raise UserError(f"Expected --schema for {data}; draft one with: prismfl schema {data} -o schema.toml.")
    declared, labelled = read_declared(Path(schema))
    given = dict(told)
    named = declared.predicting(given.pop("label", declared.label), given.pop("classes", ()))
    declared, labelled = replace(named, **given), (labelled or "label" in told) and named.target is None
    raw = load_columns(Path(data))
    for line in ignored([name for name in raw if name not in _used(declared)], declared):
        warn(line)
    declared = declared.narrowed(keep, drop)
    own = _check_columns(data, raw, declared, labelled)
    try:
        x = declared.encode(raw)
        y = declared.encode_labels(raw[declared.label]) if labelled else torch.zeros(len(x), dtype=torch.int64)
    except UserError as error:
        raise UserError(f"{data}: {error}") from None
    _tell(raw, declared, warn)
    if labelled:
        _check_classes(data, y, declared, warn)
    unit = None
    if declared.unit is not None:
        unit = torch.from_numpy(unit_codes(raw[declared.unit], declared.unit))
    prints = row_prints({name: cells for name, cells in raw.items() if name != declared.label}) + row_prints(raw)
    prints += bag_prints(list(zip(*(cells for n, cells in raw.items() if n not in (declared.label, declared.unit)))))
    holder = Holder(Records(x, y, unit), prints, str(Path(data).resolve()))
    return Table(Path(data).name, declared, labelled, own, holder)


def read_declared(path: Path) -> tuple[Schema, bool]:
    """The schema, and whether its label has classes: without a label, or with a number as one, there are none."""
    return parse_any(read_content(path), where=f"schema {path}")


def _used(schema: Schema) -> tuple[str, ...]:
    return (*schema.names, *schema.ids, schema.label, *([schema.unit] if schema.unit else []))


def _check_columns(data: str, raw: Columns, schema: Schema, labelled: bool) -> tuple[str, ...]:
    """The columns that come out, in the file's order."""
    expected = [*schema.names, *([schema.label] if labelled else []), *([schema.unit] if schema.unit else [])]
    for name in expected:
        if name not in raw:
            raise UserError(missing_column(name, raw, data))
    rows = len(raw[expected[0]])
    if not rows:
        raise UserError(f"Expected records in {data}, got only a header.")
    _check_size(data, rows, schema)
    for column in schema.columns:
        look = look_of(raw[column.name])
        plainly = column.type == "numeric" and column.decimal == "." and not column.thousands
        if (look == "empty" and not column.may_miss) or (plainly and look in WRONG):
            raise UserError(f"Column '{column.name}' of {data} {HINTS.get(look, HINTS['text'])}.")
    return tuple(name for name in raw if name in (*expected, *schema.ids))


def _check_size(data: str, rows: int, schema: Schema) -> None:
    """Refuse, before anything is charged, a table that does not fit into memory once it is encoded."""
    size = 4 * rows * schema.width
    if size > MOST_BYTES:
        widest = sorted(schema.columns, key=lambda column: -column.width)[:3]
        told = ", ".join(f"'{column.name}' ({column.width:,} features)" for column in widest)
        raise UserError(
            f"{data} takes {size / 2**30:.0f} GB once it is encoded, at most {MOST_BYTES // 2**30} serve; coarsen or "
            f"--drop the widest columns: {told}."
        )


def _tell(raw: Columns, schema: Schema, warn: Warn) -> None:
    """What the owner should know of the values, and nobody else: those outside the bounds, columns of one value."""
    clipped = sum(_outside(raw[column.name], column) for column in schema.columns if column.type == "numeric")
    if clipped:
        warn(f"{clipped} values lie outside their declared bounds and were clipped; this number stays on the site.")
    if cut := schema.cut_differences(raw):
        warn(f"{cut} differences lie outside their rule and its within, and were cut; this number stays on the site.")
    constant = [name for name in schema.names if len({plain(cell) for cell in raw[name]}) == 1]
    if constant:
        warn(f"Columns with one value in all rows: {listed(constant)}; they say nothing, --drop leaves them out.")


def _check_classes(data: str, y: torch.Tensor, schema: Schema, warn: Warn) -> None:
    sizes = torch.bincount(y, minlength=len(schema.classes)).tolist()
    if sum(n > 0 for n in sizes) < 2:
        raise UserError(
            f"Label '{schema.label}' of {data} takes only one of its declared classes; leave label and classes out of "
            "the schema and declare it as a column, or drop it."
        )
    for name, n in zip(schema.classes, sizes):
        if n < FEW:
            warn(f"Class '{name}' has fewer than {FEW} records: its synthetic records will be mostly noise.")


def _outside(values: list[Any], column: Column) -> int:
    low, high = column.bounds()
    numbers = (number_of(v, column.decimal, column.thousands) for v in values if not is_missing(v))
    return sum(not low <= number <= high for number in numbers if number is not None)


def _declared_size(table: Table, records: int | None, about: int | None) -> int:
    known = DATASETS[table.name].train_size if table.holder.name in DATASETS else table.schema.train_size
    declared = records if records is not None else known or about
    if declared is None:
        raise UserError(
            f"Expected a public (rounded) number of records for {table.name}: give --records, or train_size in the "
            "schema. It is never taken from the data."
        )
    return declared


def _defaults(size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the declared size: batches near 1,000; small tables ask more for moments."""
    halvings = max(2, math.ceil(math.log2(max(1.0, size / BATCH))))
    queries = given.get("queries")
    start = max(1, queries // 3) if isinstance(queries, int) else 50 if size < SMALL else 20
    return {"rate": 2.0**-halvings, "start": start, "balance": "noised"}


def _drawn(
    table: Table, synthesizer: Synthesizer, size: int, rows: int | None, seed: int | None
) -> dict[str, np.ndarray[Any, Any]]:
    """Synthetic columns in the order of the original, as many rows as asked or else as many units as declared; ids are
    new numbers."""
    x, y = (torch.from_numpy(part) for part in synthesizer.sample(spare(table.schema, rows or size), seed=seed))
    key = Key.from_os() if seed is None else Key.seed(seed)
    wanted: dict[str, Any] = {}
    if table.schema.rows_column is not None:
        wanted = {"units": size} if rows is None else {"rows": rows}
    found = made_table(table.schema, x, y, key=key, labelled=table.labelled, **wanted)
    return {name: found[name] for name in table.order}


def _refuse_existing(paths: Sequence[Path], *, force: bool) -> None:
    for path in paths:
        if path.is_dir() or (not force and (path.exists() or path.is_symlink())):
            raise UserError(f"'{path}' exists already; give --force to replace it, or another file with -o.")
