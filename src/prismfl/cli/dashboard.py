"""`prismfl dashboard`: the runs of a folder on a local page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.errors import UserError


def dashboard(
    folder: Annotated[Path, typer.Argument(help="A folder with run directories.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where it listens, on 127.0.0.1.")] = 8765,
) -> None:
    """Show runs, live progress, reports, comparisons and a planner at 127.0.0.1; the address carries a token."""
    try:
        from prismfl.report.dashboard import serve
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette"):
            raise
        raise UserError("The dashboard needs fastapi and uvicorn: pip install 'prismfl[dashboard]'.") from None
    serve(folder, port=port, said=lambda address: terminal.say(f"Open {address}   (Ctrl-C ends it)"))
