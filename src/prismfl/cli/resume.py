"""`prismfl resume`: a run that was cut off, to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format


def resume(path: Annotated[Path, typer.Argument(help="A run directory.")], fmt: Format = "table") -> None:
    """Take a run that was cut off to its end; nothing is charged twice."""
    from prismfl.runs import simulate

    with terminal.progress() as progress:
        result = simulate.resume(path, progress=progress, warn=terminal.warn).as_dict()
    terminal.emit_result(result, fmt)
