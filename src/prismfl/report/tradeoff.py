"""A sweep for people: accuracy against epsilon as a table, a picture and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from prismfl.report.charts import simple_rows
from prismfl.report.editions import ELSEWHERE, ON_SITE, STAYS, is_own, share_sweep
from prismfl.report.page import framed, write_pair
from prismfl.report.tables import is_simulated, size_words
from prismfl.report.tradeoff_charts import chart, draw, encoder_name
from prismfl.report.words import NO_PROTECTION
from prismfl.runs.cells import FAILED, FINISHED, read_plan, rows_of, states_of
from prismfl.version import __version__

SCHEMA_VERSION = 1
Facts = Mapping[str, Any]
COLUMNS = ("method", "encoder", "epsilon", "accuracy %", "sd", "balanced", "AUC", "bytes", "time", "seeds")
INTERVAL = "± is half of the 95 % interval of the mean over seeds (t-distribution)"
SPREAD = "sd is the standard deviation over seeds"
ONE_SEED = "without ±: one seed, so no interval"
ENDLESS, NOTHING = "∞", "0"


def sweep_facts(folder: Path, *, on_site: bool = False) -> dict[str, Any]:
    """All that is told of a sweep, finished or not. What was measured on own records is there on site only."""
    plan = read_plan(folder)
    states, first = states_of(folder, plan), next(iter(plan.asked.values()))
    own = any(is_own(c.model_dump(), {}) for c in plan.asked.values())
    own = own or any(s.result.get("own_data") is True for s in states if s.result is not None)
    facts = {
        "schema_version": SCHEMA_VERSION,
        "prismfl": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "own_data": own,
        "setting": {key: getattr(first, key) for key in ("data", "split", "sites", "model", "delta")},
        "rows": rows_of(states),
        "cells": [state.as_dict() for state in states],
        "edition": ON_SITE,
        "withheld": [],
    }
    return facts if on_site else share_sweep(facts)


def sweep_table(facts: Facts) -> Table:
    """The rows of a sweep as a table for the terminal."""
    title = _where(facts) + (f" ({STAYS})" if facts["own_data"] and facts["edition"] == ON_SITE else "")
    notes = "\n".join(_notes(facts))
    planned = max(row["seeds_planned"] for row in facts["rows"])
    title += f", {planned} seed{'s' if planned > 1 else ''} each"
    table = Table(title=title, title_justify="left", caption=notes, caption_justify="left", pad_edge=False)
    widest = max(len(str(row["method"])) if row["seeds"] == row["seeds_planned"] else 13 for row in facts["rows"])
    kept = [name for name in _told(facts) if name not in ("encoder", "seeds")]  # 80 columns have no room for these
    for name in kept:
        side: Literal["left", "right"] = "left" if name in COLUMNS[:3] else "right"
        least, keep = min(widest, 20) if name == "method" else None, name in ("epsilon", "accuracy %")
        table.add_column(name, justify=side, no_wrap=keep, min_width=least, overflow="fold")
    for row, cells in zip(facts["rows"], _cells(facts)):
        below = f"\n+ {encoder_name(row)}" if encoder_name(row) else ""
        below += f"\n{cells['seeds']} seeds" if row["seeds"] < row["seeds_planned"] else ""
        table.add_row(*(Text(cells[name] + (below if name == "method" else "")) for name in kept))
    return table


def picture_of(facts: Facts, folder: Path) -> Path | None:
    """The chart as a PNG file in the sweep's folder; of own records it says in its name that it stays. None without a
    finished run."""
    if not any(row.get("accuracy") is not None for row in facts["rows"]):
        return None
    stays = bool(facts["own_data"])
    return draw(facts["rows"], folder / ("on-site-tradeoff.png" if stays else "tradeoff.png"), stays=stays)


def write_tradeoff(facts: Facts, path: Path) -> tuple[Path, Path]:
    """The page of a sweep at `path`, and its twin beside it with the suffix .json."""
    raw = (json.dumps(facts, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
    return write_pair(path, _page(facts), raw, edition=str(facts["edition"]))


def _page(facts: Facts) -> str:
    methods = list(dict.fromkeys(str(row["method"]) for row in facts["rows"]))
    data = str(facts["setting"]["data"])
    title = f"Privacy against utility: {', '.join(methods)} on {data}"
    finished = sum(cell["status"] == FINISHED for cell in facts["cells"])
    table = simple_rows(*_figures(facts))
    notes = "".join(f"<li>{escape(line)}</li>" for line in _notes(facts))
    body = (
        f'<article aria-labelledby="title"><header class="run"><p class="kicker">Trade-off, {facts["edition"]} edition'
        f'</p><h1 id="title">{escape(", ".join(methods))} <span>on {escape(data)}</span></h1>'
        f'<p class="where">{escape(_where(facts))}</p>'
        f'<p class="quiet">{finished} of {len(facts["cells"])} runs finished</p></header>'
        f'<section id="tradeoff-section"><h2>Privacy against utility</h2>{_drawn(facts)}</section>'
        f'<section id="table-section"><h2>The figures</h2><div class="scroll" tabindex="0">{table}</div>'
        f'<ul class="limits quiet">{notes}</ul></section>{_open(facts)}</article>'
    )
    return framed(title, body, edition=str(facts["edition"]), facts=facts)


def _drawn(facts: Facts) -> str:
    if "accuracy" in facts["withheld"]:
        return (
            f"<p>Accuracy on held-out records: <b>{ELSEWHERE}</b>. It is exact and was never charged, so it is not in "
            "this edition. Where it may be seen: <code>prismfl report SWEEP --on-site</code>.</p>"
        )
    drawn = chart(facts["rows"])
    if not drawn:
        return "<p>No run of this sweep has an accuracy yet.</p>"
    words = "".join(f"<p>{line}</p>" for line in _reading(facts["rows"]))
    best = "".join(f"<li>{_unbroken(escape(line))}</li>" for line in best_lines(facts["rows"]))
    return f'<div class="pair">{drawn}<div>{words}{f"<ul class=limits>{best}</ul>" if best else ""}</div></div>'


def _reading(rows: Sequence[Facts]) -> list[str]:
    """How to read the chart: of the lines that are in it."""
    lines = [
        "<b>How to read it.</b> To the left the promise is stronger: a smaller epsilon. Higher is more accurate on "
        "held-out records. A method that is higher at the same epsilon gives more for the same promise."
    ]
    if any(row.get("accuracy") is not None and row["epsilon_asked"] is None for row in rows):
        lines.append(
            "Level lines have no epsilon to choose: without a guarantee they show what privacy costs; where nothing "
            "leaves, what a site reaches alone."
        )
    if any(row.get("accuracy") is not None and encoder_name(row) for row in rows):
        lines.append("Dashed lines look through a public encoder that was trained elsewhere.")
    if any(row.get("accuracy_half_width") is not None for row in rows):
        lines.append(
            "Bars and bands: 95 % intervals of the mean over seeds. Where they overlap, the order may be luck."
        )
    else:
        lines.append("There is one seed, so no interval: how far another seed would be off is not known.")
    return lines


def _unbroken(line: str) -> str:
    """A figure, its interval and its unit stay on one line."""
    return line.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")


def best_lines(rows: Sequence[Facts]) -> list[str]:
    """The most accurate of several methods at each epsilon, and whether the next may be as good."""
    lines = []
    for epsilon in sorted({row["epsilon_asked"] for row in rows if row["epsilon_asked"]}):
        here = [r for r in rows if r["epsilon_asked"] == epsilon and r.get("accuracy") is not None]
        here.sort(key=lambda row: -row["accuracy"])
        if len(here) < 2:
            continue
        best, other = here[:2]
        line = f"At epsilon {epsilon:g} {_name(best)} leads with {_score(best)} %"
        line += f", then {_name(other)} with {_score(other)} %"
        wide = [r["accuracy_half_width"] for r in (best, other) if r["accuracy_half_width"] is not None]
        if len(wide) == 2 and best["accuracy"] - other["accuracy"] < sum(wide):
            line += "; their intervals overlap"
        lines.append(line + ".")
    return lines


def best_line(facts: Facts) -> str | None:
    """Which method did best, and at which price: epsilon and bytes. None before a run has finished."""
    known = [row for row in facts["rows"] if row.get("accuracy") is not None]
    if not known:
        return None
    known.sort(key=lambda row: -row["accuracy"])
    best = known[0]
    epsilon = {ENDLESS: "no DP guarantee", NOTHING: "nothing leaves"}.get(_epsilon(best), f"epsilon {_epsilon(best)}")
    line = f"Best: {_name(best)} with {_score(best)} %, for {epsilon.removesuffix(' *')}"
    line += f" ({NO_PROTECTION})" if is_simulated(best) else ""
    line += f" and {size_words(best['bytes'])} sent"
    private = next((r for r in known if _epsilon(r) != ENDLESS), None) if _epsilon(best) == ENDLESS else None
    if private is not None:
        line += (
            f"; with an epsilon: {_name(private)} with {_score(private)} % for {_epsilon(private).removesuffix(' *')}"
        )
        line += f" ({NO_PROTECTION})" if is_simulated(private) else ""
    wide = [r["accuracy_half_width"] for r in known[:2] if r["accuracy_half_width"] is not None]
    if len(wide) == 2 and best["accuracy"] - known[1]["accuracy"] < sum(wide):
        line += f"; the intervals of {_name(best)} and {_name(known[1])} overlap"
    return line + "."


def _name(row: Facts) -> str:
    encoder = encoder_name(row)
    return f"{row['method']} with {encoder}" if encoder else str(row["method"])


def _where(facts: Facts) -> str:
    s = facts["setting"]
    unit = next((f", per {row['unit']}" for row in facts["rows"] if row.get("unit")), "")
    return f"{s['data']}, {s['split']} split, {s['sites']} sites, delta {s['delta']:g}{unit}"


def _score(row: Facts) -> str:
    half = row["accuracy_half_width"]
    return f"{row['accuracy']:.1f}" if half is None else f"{row['accuracy']:.1f} ± {half:.1f}"


def _epsilon(row: Facts) -> str:
    """Never a blank: infinity without a guarantee, nought where nothing leaves, else what was asked for or more."""
    if not row.get("guarantee"):
        return "-" if row["epsilon_asked"] is None else f"{row['epsilon_asked']:g}"
    if row["guarantee"] == "nothing leaves":
        return NOTHING
    total = row.get("epsilon_total", row["epsilon"])
    if row["guarantee"] == "none" or total is None:
        return ENDLESS
    asked = row["epsilon_asked"] or 0.0
    return (f"{asked:g}" if total <= asked else f"{total:.3g}") + (" *" if is_simulated(row) else "")


def _told(facts: Facts) -> list[str]:
    """The columns that say something: encoders where there are any, a spread where there are several seeds."""
    rows = facts["rows"]
    empty = set() if any(encoder_name(row) for row in rows) else {"encoder"}
    empty |= set() if any(row.get("accuracy_sd") is not None for row in rows) else {"sd"}
    return [name for name in COLUMNS if name not in empty]


def _figures(facts: Facts) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the page's table."""
    kept = _told(facts)
    return kept, [[cells[name] for name in kept] for cells in _cells(facts)]


def _cells(facts: Facts) -> list[dict[str, str]]:
    blank = "†" if facts["withheld"] else "-"

    def shown(row: Facts, key: str) -> str:
        return blank if row.get(key) is None else f"{row[key]:.1f}"

    return [
        {
            "method": str(row["method"]),
            "encoder": encoder_name(row) or "-",
            "epsilon": _epsilon(row),
            "accuracy %": blank if row.get("accuracy") is None else _score(row),
            "sd": shown(row, "accuracy_sd"),
            "balanced": shown(row, "balanced_accuracy"),
            "AUC": shown(row, "auc"),
            "bytes": "-" if row.get("bytes") is None else size_words(row["bytes"]),
            "time": blank if (took := row.get("seconds")) is None else f"{took:.{0 if took >= 10 else 1}f} s",
            "seeds": f"{row['seeds']}"
            if row["seeds"] == row["seeds_planned"]
            else f"{row['seeds']} of {row['seeds_planned']}",
        }
        for row in facts["rows"]
    ]


def _notes(facts: Facts) -> list[str]:
    rows = [row for row in facts["rows"] if row["seeds"]]
    if facts["withheld"]:
        notes = [f"† {ELSEWHERE}; see it with --on-site"]
    else:
        notes = [INTERVAL, SPREAD] if any(row["seeds"] > 1 for row in rows) else []
        notes += [ONE_SEED] if any(row["seeds"] == 1 for row in rows) else []
    told = {_epsilon(row) for row in rows}
    notes += [f"{ENDLESS} no DP guarantee"] if ENDLESS in told else []
    notes += [f"{NOTHING} nothing leaves a site"] if NOTHING in told else []
    notes += [f"* {NO_PROTECTION} (the noise was seeded)"] if any(is_simulated(row) for row in rows) else []
    missing = [cell for cell in facts["cells"] if cell["status"] != FINISHED]
    return notes + ([f"{len(missing)} of {len(facts['cells'])} runs are not finished"] if missing else [])


def _open(facts: Facts) -> str:
    """The runs that are not finished, and why."""
    rows = [cell for cell in facts["cells"] if cell["status"] != FINISHED]
    if not rows:
        return ""
    table = simple_rows(["run", "state", "why"], [_why(cell) for cell in rows])
    return f'<section id="open-section"><h2>Not finished</h2><div class="scroll" tabindex="0">{table}</div></section>'


def open_lines(facts: Facts) -> list[str]:
    """A line for each run that is not finished: which, how it stands, and why or what to do."""
    rows = [_why(cell) for cell in facts["cells"] if cell["status"] != FINISHED]
    return [f"not in the table: {name}: {state}, {words}" for name, state, words in rows]


def _why(cell: Facts) -> list[str]:
    failed = cell["status"] == FAILED
    words = str(cell.get("reason") or "-") if failed else "the same command goes on"
    return [str(cell.get("name") or cell["method"]), str(cell["status"]), words]
