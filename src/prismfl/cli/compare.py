"""`prismfl compare`: runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders with some below.")],
    on_site: Annotated[bool, typer.Option("--on-site", help="With accuracy on own records; never to be sent.")] = False,
    fmt: Format = "table",
) -> None:
    """A table over runs for each data set and unit: what leaves, epsilon, accuracy over seeds, bytes, seconds."""
    from rich.console import Group

    from prismfl.report.comparison import compare_runs, comparison_tables, runs_in, unfinished_runs

    runs = runs_in(runs)
    rows, left_out = compare_runs(runs, on_site=on_site), unfinished_runs(runs)
    terminal.emit(rows, fmt, lambda: Group(*comparison_tables(rows)))
    for run in left_out:
        terminal.say(f"not in the table: {run['run']}: {run['words']}")
