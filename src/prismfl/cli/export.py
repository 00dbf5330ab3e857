"""`prismfl export`: a finished run's model or synthetic set as a file that others read, with its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format


def export(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    to: Annotated[
        str,
        typer.Option("--to", help="A model: torch, onnx, safetensors. The synthetic set: images, npz, parquet, csv."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder, or a new file with the format's own ending.")],
    model: Annotated[
        str | None, typer.Option("--model", help="head, linear or network (default: the one that the run recommends).")
    ] = None,
    fmt: Format = "table",
) -> None:
    """Write a model or the synthetic set of a finished run, with a card that carries the certificate."""
    from prismfl.report.card import export as write
    from prismfl.report.tables import simple_table

    done = write(run, to, out, model=model)
    shown = [{"what": key, "value": str(value)} for key, value in done.items()]
    terminal.emit(done, fmt, lambda: simple_table("Exported", shown))
