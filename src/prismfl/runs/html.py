"""How plans, results and runs look in a notebook: small tables and pictures. Every text is escaped, since a class, a
path or a whole run directory may come from anybody; pictures stand in the page itself, so that nothing is fetched."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismfl.errors import UserError
from prismfl.files import inside as run_files

PNG = b"\x89PNG\r\n\x1a\n"
MOST_PICTURE_BYTES = 8 * 2**20
LONGEST = 300
_NAME = "text-align:left;font-weight:normal;opacity:.7;padding:2px 12px 2px 0"
_CELL = "text-align:left;padding:2px 12px 2px 0"


def escaped(value: object) -> str:
    """Any value as text of a page, cut where it would fill it."""
    text = str(value)
    return html.escape(text if len(text) <= LONGEST else f"{text[:LONGEST]} ...")


def facts_table(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """A line a fact: its name and its value."""
    lines = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escaped(name)}</th><td style="{_CELL}">{escaped(value)}</td></tr>'
        for name, value in facts
    )
    return f"<div><strong>{escaped(title)}</strong><table><tbody>{lines}</tbody></table></div>"


def grid_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line a row, under the names of the first row's keys."""
    if not rows:
        return ""
    names = list(rows[0])
    head = "".join(f'<th scope="col" style="{_NAME}">{escaped(name)}</th>' for name in names)
    lines = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escaped(row.get(name, ""))}</td>' for name in names) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def picture(raw: bytes, says: str) -> str:
    """A PNG in the page itself; what is none is left out."""
    if not raw.startswith(PNG):
        return ""
    packed = base64.b64encode(raw).decode()
    look = "max-width:100%;min-width:min(100%,280px);image-rendering:pixelated"
    return f'<img alt="{escaped(says)}" style="{look}" src="data:image/png;base64,{packed}">'


def sample_picture(folder: Path) -> str:
    """The picture of a run's synthetic images, one row a class, where it has one."""
    try:
        return picture(run_files.read_bytes(folder, "gen/sample.png", most=MOST_PICTURE_BYTES), "synthetic images")
    except (FileNotFoundError, UserError):
        return ""


def percent(value: float | None) -> str:
    """An accuracy as tables show it."""
    return "-" if value is None else f"{value:.1f} %"


def budget(epsilon: float | None, guarantee: str) -> str:
    """An epsilon as tables show it; no guarantee is infinity, never a blank."""
    return "∞" if epsilon is None else f"{epsilon:.3g} ({guarantee})"


def result_facts(told: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What a result's table says, from `Result.as_dict`."""
    facts: list[tuple[str, object]] = [
        ("method", told["method"]),
        ("data", f"{told['data']}, {told['sites']} sites, split {told['split']}"),
        ("accuracy", percent(told["accuracy"])),
        *_scores(told),
        ("epsilon", budget(told["epsilon"], told["guarantee"])),
        ("delta, unit", f"{told['delta']:g}, {told['unit']}"),
        ("noise", told["noise"]),
        ("sent by the sites", f"{told['bytes_up'] / 1000:,.1f} kB"),
        ("seconds", told["seconds"]),
        ("directory", told["run_dir"]),
    ]
    spent = told.get("spent_so_far") or {}
    if spent.get("epsilon") is not None:
        facts.insert(
            [name for name, _ in facts].index("delta, unit") + 1,
            ("paid by these data in all", f"epsilon {spent['epsilon']:.3g}"),
        )
    return facts


def _scores(told: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What accuracy does not say, where the run has measured it. The file may come from anybody: numbers alone."""
    found = (told.get("models") or {}).get(told.get("recommended")) or told.get("scores")
    if not isinstance(found, Mapping):
        return []
    names = {"balanced_accuracy": "balanced accuracy", "auc": "AUC"}
    return [(shown, percent(found[name])) for name, shown in names.items() if isinstance(found.get(name), int | float)]


def columns_table(columns: Mapping[str, Sequence[Any]], rows: int = 5) -> str:
    """The first synthetic records of a table."""
    shown = zip(*(values[:rows] for values in columns.values()))
    return grid_table([dict(zip(columns, map(_plain, row))) for row in shown])


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plan_facts(told: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What a plan's table says, from the fields of `Plan`."""
    sigma = told["sigma"]
    facts: list[tuple[str, object]] = [
        ("epsilon", budget(told["epsilon"], told["guarantee"])),
        ("delta, unit", f"{told['delta']:g}, {told['unit']} ({told['relation']})"),
        ("noise (sigma)", "none" if sigma is None else f"{sigma:.4g}"),
        ("rounds, releases", f"{told['rounds']}, {told['releases']}"),
        ("sent by the sites", f"{told['bytes_up'] / 1000:,.1f} kB"),
        ("records a site (declared)", told["records"]),
        ("cost", told["cost"]),
    ]
    return facts + [("note", line) for line in told["warnings"]]
