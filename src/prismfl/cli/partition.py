"""`prismfl partition`: a split before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.completing import complete_data
from prismfl.cli.options import (
    Channels,
    Classes,
    DataDir,
    Format,
    ImageSize,
    Label,
    Records,
    Schema,
    Sites,
    Split,
    Test,
    Unit,
)
from prismfl.stages import listening


def partition(
    data: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_data,
            help="A data set's name, or a path to your own data (default: as ./prismfl.toml says).",
            show_default=False,
        ),
    ] = None,
    schema: Schema = None,
    label: Label = None,
    classes: Classes = None,
    records: Records = None,
    unit: Unit = None,
    image_size: ImageSize = None,
    channels: Channels = None,
    test: Test = None,
    sites: Sites = None,
    split: Split = None,
    seed: Annotated[int | None, typer.Option(help="Of the split (default: 0).")] = None,
    data_dir: DataDir = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the split (default: none).")] = None,
    fmt: Format = "table",
) -> None:
    """How a split deals the records of each class to the sites; your own records are counted exactly, for you alone."""
    found = terminal.own_data({key: value for key, value in locals().items() if key not in ("plot", "fmt")})
    from prismfl.report.listings import split_rows
    from prismfl.runs.config import written
    from prismfl.runs.planning import is_own

    config = written(None, [], found)
    with terminal.progress() as progress, listening(progress):
        rows = split_rows(config, plot=plot)
    if plot is not None:
        terminal.say(f"wrote {plot}")
    if is_own(config):
        terminal.warn("these are exact counts of your own records: they stay on this site.")
    terminal.rows(f"{config.data}, {config.split}", rows, fmt)
