"""`prismfl compare`: runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    on_site: Annotated[bool, typer.Option("--on-site", help="With accuracy on own records; never to be sent.")] = False,
    fmt: Format = "table",
) -> None:
    """One table over runs: what leaves, epsilon, accuracy over seeds, bytes, seconds."""
    from prismfl.report.comparison import compare_runs, comparison_table, unfinished_runs

    rows, left_out = compare_runs(runs, on_site=on_site), unfinished_runs(runs)
    terminal.emit(rows, fmt, lambda: comparison_table(rows))
    for run in left_out:
        terminal.say(f"not in the table: {run['run']}: {run['words']}")
