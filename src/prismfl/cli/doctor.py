"""`prismfl doctor`: what would fail later, found now."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format


def doctor(
    folder: Annotated[Path | None, typer.Argument(help="A site's or a server's folder. Default: this machine.")] = None,
    server: Annotated[str | None, typer.Option(help="HOST:PORT: whether this site reaches that server.")] = None,
    fmt: Format = "table",
) -> None:
    """Look at versions, clock, disk, ports, certificates, ledger, data and limits; each finding says what to do."""
    from prismfl.report.doctor import examine

    found = examine(folder, address=server)
    rows = [{"what": f.what, "": f.verdict, "finding": f.words, "what to do": f.mend} for f in found]
    terminal.rows("Doctor", rows, fmt, value=[asdict(one) for one in found])
    if any(one.verdict == "bad" for one in found):
        raise typer.Exit(1)
