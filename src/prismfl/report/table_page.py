"""The page of a synthetic table: what was promised for it, whether it is the certified one, and what its columns hold.

Everything here is read off the synthetic table and its certificate, which were released: the page may go where they go.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismfl.data.columns import LIMIT, read_columns
from prismfl.data.constraints import RuleKeeper
from prismfl.data.schema import Column, Schema
from prismfl.data.schema_file import parse_any
from prismfl.data.table_files import KINDS, certificate_path
from prismfl.errors import UserError
from prismfl.files.bounded import read_json, read_regular
from prismfl.report.charts import bars, simple_rows
from prismfl.report.editions import SHARING
from prismfl.report.page import framed, write_pair
from prismfl.rng import Key
from prismfl.version import __version__

BINS = 10
MOST_BARS = 12
TOLD = ("statement", "guarantee", "method", "data", "epsilon", "delta", "unit", "relation", "noise", "records", "rows")

Facts = dict[str, Any]


def is_table(path: Path) -> bool:
    """Whether a path is a table's file, not the folder of a run."""
    return path.suffix in KINDS and not path.is_dir()


def table_facts(path: Path) -> Facts:
    """What the page says, from the table and the certificate beside it."""
    if not path.exists():
        raise UserError(f"Expected a synthetic table at {path}, but there is nothing.")
    place = certificate_path(path)
    told = read_json(place) if place.exists() else None
    if not isinstance(told, dict) or not isinstance(told.get("table"), dict):
        raise UserError(f"Expected the certificate of {path} at {place}; `prismfl synth` writes it beside the table.")
    schema, labelled = parse_any(told["table"], where=str(place))
    raw = read_columns(path)
    same = hashlib.sha256(read_regular(path, limit=LIMIT)).hexdigest() == told.get("sha256")
    # As they stand: measured from another column, a value could not but keep its rule.
    plain = replace(schema, constraints=tuple(replace(rule, within=None) for rule in schema.constraints))
    values = plain.values(plain.encode(raw))
    return {
        "edition": SHARING,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "prismfl": __version__,
        "table": path.name,
        "certificate": {key: told.get(key) for key in TOLD},
        "checks": {"the table is the certified one": same, **_kept(schema, values)},
        "columns": [_described(column, values[column.name]) for column in schema.columns]
        + ([_shares(schema.label, [str(cell) for cell in raw[schema.label]])] if labelled else []),
        "unit": _units(schema, raw),
    }


def write_table_page(path: Path, out: Path) -> tuple[Path, Path, Facts]:
    """The page at `out`, its JSON twin beside it, and what they say."""
    facts = table_facts(path)
    raw = (json.dumps(facts, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
    return (*write_pair(out, render_table(facts), raw, edition=SHARING), facts)


def render_table(facts: Mapping[str, Any]) -> str:
    """The whole page."""
    title = f"Synthetic table: {facts['table']}"
    certificate = [[key.replace("_", " "), _plain(value)] for key, value in facts["certificate"].items()]
    checks = [[what, "yes" if held else "no"] for what, held in facts["checks"].items()]
    shown = [*facts["columns"], *([facts["unit"]] if facts["unit"] else [])]
    drawn = "".join(
        bars(
            f"column-{i}",
            one["name"],
            [(n, v, f"{100 * v:.1f} %") for n, v in one["shares"]],
            label=one["name"],
            high=_whole_bar([v for _, v in one["shares"]]),
        )
        + f'<p class="quiet">{escape(one["words"])}</p>'
        for i, one in enumerate(shown)
    )
    body = (
        f'<article aria-labelledby="title"><header class="run"><p class="kicker">Privacy report, {SHARING} edition</p>'
        f'<h1 id="title">{escape(title)}</h1></header>'
        f'<section id="guarantee-section"><h2>The guarantee</h2>{simple_rows(["what", "value"], certificate)}</section>'
        f'<section id="checks-section"><h2>Checks</h2>{simple_rows(["what", "holds"], checks)}</section>'
        f'<section id="columns-section"><h2>What its columns hold</h2><p>Shares in the synthetic table. They are noisy '
        f"copies of the real ones, and may be told to whom the table may be told.</p>{drawn}</section></article>"
    )
    return framed(title, body, edition=SHARING, facts=facts)


def _kept(schema: Schema, values: Mapping[str, npt.NDArray[Any]]) -> dict[str, bool]:
    keeper = RuleKeeper({c.name: c for c in schema.columns}, schema.constraints, Key.seed(0).numpy())
    return {rule.words: bool(keeper.holds(rule, dict(values)).all()) for rule in schema.constraints}


def _described(column: Column, values: npt.NDArray[Any]) -> Facts:
    if not column.is_number:
        names = [column.categories[code] if code >= 0 else "" for code in values.tolist()]
        return _shares(column.name, names, kind=column.type)
    known = values[~np.isnan(values)]
    edges = column.unscaled(np.linspace(-1.0, 1.0, BINS + 1))  # as even as the declared scale
    edges[[0, -1]] = column.bounds()
    counts, _ = np.histogram(known, bins=edges)
    ends = [_short(column, edge) for edge in edges.tolist()]
    total = max(1, len(values))
    found = [(f"{low} to {high}", count / total) for low, high, count in zip(ends, ends[1:], counts.tolist())]
    found += [("missing", 1 - len(known) / total)] if column.may_miss else []
    words = f"{column.type}; no value"
    if len(known):
        spread = "" if column.type != "numeric" else f", standard deviation {known.std():.4g}"
        words = f"{column.type}; mean {_short(column, float(known.mean()))}{spread}"
    return {"name": column.name, "shares": found, "words": words}


def _shares(name: str, cells: Sequence[str], *, kind: str = "label") -> Facts:
    counts = Counter(cells).most_common()
    rest = sum(count for _, count in counts[MOST_BARS:])
    found = [(cell or "missing", count / len(cells)) for cell, count in counts[:MOST_BARS]]
    found += [(f"{len(counts) - MOST_BARS} others", rest / len(cells))] if rest else []
    return {"name": name, "shares": found, "words": kind}


def _units(schema: Schema, raw: Mapping[str, Sequence[Any]]) -> Facts | None:
    """How many rows the units have."""
    if schema.rows_column is None or schema.unit not in raw:
        return None
    sizes = Counter(Counter(str(one) for one in raw[schema.unit or ""]).values())
    total = sum(sizes.values())
    shares = [(str(size), sizes[size] / total) for size in sorted(sizes)]
    return {"name": f"rows of a {schema.unit}", "shares": shares, "words": f"{total} of them"}


def _whole_bar(shares: Sequence[float]) -> float:
    """The share that a whole bar stands for: by the largest share alone, half of the rows would look like all."""
    return next((high for high in (0.1, 0.25, 0.5) if max(shares, default=0.0) <= high), 1.0)


def _short(column: Column, value: float) -> str:
    if column.type != "numeric":
        return column.words(value)
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
