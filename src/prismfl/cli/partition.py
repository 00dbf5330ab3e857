"""`prismfl partition`: a split before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import DataDir, Format


def partition(
    name: Annotated[str, typer.Argument(metavar="DATA", help="A data set's name.")],
    sites: Annotated[int, typer.Option("--sites", "-n", help="How many sites the records are dealt to.")] = 5,
    split: Annotated[str, typer.Option(help="How: as `prismfl run --split` takes it.")] = "iid",
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    data_dir: DataDir = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the split.")] = None,
    fmt: Format = "table",
) -> None:
    """How a split deals the records of each class to the sites."""
    from prismfl.report.listings import split_rows

    rows = split_rows(name, sites=sites, split=split, seed=seed, data_dir=data_dir, plot=plot)
    if plot is not None:
        terminal.say(f"wrote {plot}")
    terminal.rows(f"{name}, {split}", rows, fmt)
