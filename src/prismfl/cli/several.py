"""`prismfl run` with several methods or seeds: a sweep over them, ending in one table and one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismfl.cli import terminal
from prismfl.errors import PrismError, UserError


@dataclass(frozen=True)
class Several:
    """What is run over, and where: an empty axis is what the config says."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    out: str | None
    yes: bool


def seeds_of(text: str | None, first: int | None) -> tuple[int, ...]:
    """The seeds that are meant: so many from the first on, or those that are listed."""
    if text is None:
        return () if first is None else (first,)
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or ("," not in text and not 0 < found[0] <= 1000):
        raise UserError(
            f"Expected --seeds as a number of seeds from 1 to 1000, or as a list such as 0,5,7; got '{text}'."
        )
    if "," not in text:
        return tuple(range(first or 0, (first or 0) + found[0]))
    return tuple(dict.fromkeys(found))


def run_all(asked: Several, *, file: Path | None, sets: Sequence[str], given: Mapping[str, Any], fmt: str) -> None:
    """Every run in its own directory in one folder; the same command with that --out goes on where it stopped."""
    from prismfl.report.tradeoff import best_line, open_lines, sweep_facts, sweep_table
    from prismfl.runs.sweep import Axes, check_cap, go, planned, price_words

    folder = Path(asked.out) if asked.out else Path("runs") / f"several-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    axes = Axes(methods=asked.methods, seeds=asked.seeds)
    sweep = planned(folder, axes, file=file, sets=sets, given=given)
    check_cap(sweep)
    price = price_words(sweep)
    if price is not None and not asked.yes:
        raise UserError(f"{price}. Start them with --yes.")
    if price is not None:
        terminal.say(f"{price}.")
    with terminal.progress() as progress:
        go(sweep, progress=progress, warn=terminal.warn, tell=terminal.say)
    facts = sweep_facts(folder, on_site=True)
    terminal.emit(facts, fmt, lambda: sweep_table(facts))
    for line in open_lines(facts):
        terminal.say(line)
    best = best_line(facts)
    if best is not None:
        terminal.say(best)
    terminal.say(f"Runs: {folder}. A page: prismfl report {folder}")
    failed = sum(cell["status"] == "failed" for cell in facts["cells"])
    if failed:
        raise PrismError(
            f"{failed} of {len(facts['cells'])} runs failed; the same command with --out {folder} goes on."
        )
