"""`prismfl figures`: pictures of one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format


def figures(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; images are shown of the first.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder (default: figures in the first run).")] = None,
    on_site: Annotated[
        bool, typer.Option("--on-site", help="With accuracy on own records and gradient norms; never to be sent.")
    ] = False,
    fmt: Format = "table",
) -> None:
    """Curves over rounds, epsilon and bytes; trust regions; synthetic images and their pixels at three stages."""
    from prismfl.report.figures import draw

    made = draw(runs, out or runs[0] / "figures", on_site=on_site)
    if made["progress"] is None:
        terminal.say("progress: measured on this site only; see it with --on-site")
    rows = [{"figure": what, "file": str(path)} for what, path in made.items() if path is not None]
    terminal.rows("Figures", rows, fmt)
