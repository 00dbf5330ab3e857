"""One table over several runs: the same method and setting over seeds becomes one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.report.editions import ELSEWHERE, ON_SITE, STAYS, is_own, share_result
from prismfl.report.groups import make_group
from prismfl.report.tables import (
    SCORE_NAMES,
    best_scores,
    encoder_words,
    epsilon_words,
    fitting_scores,
    is_simulated,
    size_words,
)
from prismfl.report.words import NO_PROTECTION
from prismfl.runs.directory import RunDirectory, runs_below
from prismfl.runs.pulse import FINISHED, Standing, standing
from prismfl.runs.result import noise_of

SAME = ("method", "data", "split", "sites", "model", "guarantee", "delta", "unit", "relation", "rounds")
LOOKED = ("encoder", "pretrained_on")
FITTING = ("balanced_accuracy", "auc")
UNREADABLE = "its files cannot be read by this version, or it was cut off before they were written"


def runs_in(paths: Sequence[Path]) -> list[Path]:
    """The runs that are meant: each given one, and all below a folder that is none itself. Files beside runs, as `*`
    names them too, are left; a path that leads nowhere stays, and is an error where it is read."""
    found: list[Path] = []
    for path in paths:
        below = [] if (path / "run.json").is_file() else sorted(runs_below(path))
        found += below or [path]
    runs = [path for path in found if not path.is_file()]
    return list(dict.fromkeys(runs or found))


def compare_runs(paths: Sequence[Path], *, on_site: bool = False) -> list[dict[str, Any]]:
    """A row a method and setting, best accuracy first; those with a pretrained encoder, whose training data are more
    than the run's, come after the others. What was measured on own records is there on site only."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for path in paths:
        if _standing(path).status != FINISHED:
            continue
        result = _result(path, on_site=on_site)
        budget = None if result["epsilon"] is None else round(result["epsilon"], 2)
        key = (*(result[k] for k in SAME), *(str(result.get(k)) for k in LOOKED), budget)
        groups.setdefault(key, []).append(result)
    rows = [_row(group) for group in groups.values()]
    return sorted(rows, key=lambda row: (row["pretrained_on"] is not None, -(row["accuracy"] or 0.0)))


def unfinished_runs(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The runs that a comparison leaves out: how each stands, and what to do about it."""
    found = [(path, _standing(path)) for path in paths]
    return [
        {
            "run": str(path),
            "status": how.status,
            "round": how.done,
            "rounds": how.rounds,
            "words": how.words(path) if how.rounds else UNREADABLE,
        }
        for path, how in found
        if how.status != FINISHED
    ]


def _standing(path: Path) -> Standing:
    """How a run stands; a folder that is none is an error, a run that cannot be read is one line."""
    if not (path / "run.json").is_file():
        RunDirectory.open(path)
    try:
        run = RunDirectory.open(path)
        how = standing(run)
        if how.status == FINISHED:
            run.read_json("config.json")
            run.read_json("result.json")
    except UserError:
        return Standing("unreadable", 0, 0)
    return how


def _result(path: Path, *, on_site: bool) -> dict[str, Any]:
    run = RunDirectory.open(path)
    config, result = run.read_json("config.json"), run.read_json("result.json")
    result["noise"] = noise_of(run, config, result)
    scores = best_scores(result)
    result |= {name: scores.get(name) for name in FITTING} | {"fitting": fitting_scores(scores)}
    if is_simulated(result):
        result["guarantee"] = NO_PROTECTION
    if on_site:
        return {**result, "edition": ON_SITE, "withheld": []}
    return share_result(result, own=is_own(config, result))


def _row(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = [r["accuracy"] for r in group if r["accuracy"] is not None]
    times = [r["seconds"] for r in group if r["seconds"] is not None]
    first = group[0]
    totals = [r.get("epsilon_total", r["epsilon"]) for r in group]
    return {
        **{k: first[k] for k in (*SAME, "edition", "withheld")},
        **{k: first.get(k) for k in LOOKED},
        "leaves": ", ".join(METHODS[first["method"]].leaves) or "nothing" if first["method"] in METHODS else "?",
        "epsilon": None if first["epsilon"] is None else max(r["epsilon"] for r in group),
        "epsilon_total": None if None in totals else max(totals),
        "accuracy": round(mean(scores), 2) if scores else None,
        "accuracy_std": round(stdev(scores), 2) if len(scores) > 1 else None,
        **{name: _mean_of(group, name) for name in FITTING},
        "fitting": sorted({name for r in group for name in r.get("fitting") or ()}),
        "seeds": len(group),
        "bytes": round(mean(r["bytes_up"] + r["bytes_down"] for r in group)),
        "seconds": round(mean(times), 1) if times else None,
    }


def _mean_of(group: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [r[name] for r in group if r.get(name) is not None]
    return round(mean(known), 2) if known else None


def comparison_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """A table for each data set, unit, relation and delta: epsilons of unlike ones do not compare."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(make_group(row, row), []).append(row)
    return [comparison_table(group) for group in groups.values()]


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of a comparison as a table for the terminal, with notes on simulations and withheld values."""
    settings = {f"{r['data']}, {r['split']}, delta {r['delta']:g}, {r['relation']}" for r in rows}
    widest = min(20, max((len(str(r["method"])) for r in rows), default=0))
    title = "; ".join(sorted(settings))
    if any(r["edition"] == ON_SITE for r in rows):
        title = f"On-site edition, {STAYS}. {title}"
    notes = [f"* {NO_PROTECTION} (the noise was seeded)"] if any(is_simulated(r) for r in rows) else []
    notes += [f"† {ELSEWHERE}; see it with --on-site"] if any(r["withheld"] for r in rows) else []
    looked = sorted({f"public encoder: {words}" for r in rows if r["pretrained_on"] and (words := encoder_words(r))})
    table = Table(
        title=title, title_justify="left", caption="\n".join([*notes, *looked]) or None, caption_justify="left"
    )
    more = [name for name in FITTING if any(name in (r.get("fitting") or ()) for r in rows)]
    columns = ["method", "what leaves", "epsilon", "accuracy", *(SCORE_NAMES[n] for n in more), "bytes", "seconds"]
    encoders = any(encoder_words(r) for r in rows)
    for name in [*columns[:1], "encoder", *columns[1:]] if encoders else columns:
        least = widest if name == "method" else None
        table.add_column(
            name, justify="left" if name in ("encoder", *columns[:3]) else "right", min_width=least, overflow="fold"
        )
    for i, r in enumerate(rows):
        if i and (r["pretrained_on"] is None) != (rows[i - 1]["pretrained_on"] is None):
            table.add_section()
        blank = "†" if r["withheld"] else "-"
        score = blank if r["accuracy"] is None else f"{r['accuracy']:.1f} %"
        if r["accuracy_std"] is not None:
            score += f" ± {r['accuracy_std']:.1f} ({r['seeds']} seeds)"
        seconds = blank if r["seconds"] is None else f"{r['seconds']:.1f}"
        others = [blank if r.get(name) is None else f"{r[name]:.1f} %" for name in more]
        cells = [r["leaves"], epsilon_words(r, mark=" *"), score, *others, size_words(r["bytes"]), seconds]
        shown = [f"{r['encoder']}{' (pretrained)' if r['pretrained_on'] else ''}" if encoder_words(r) else "-"]
        table.add_row(r["method"], *(shown if encoders else []), *cells)
    return table
