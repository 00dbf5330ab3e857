"""`prismfl bundle`: federated rounds over a shared folder, for sites that nobody can call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format, Sets

app = typer.Typer(no_args_is_help=True, help="Exchange signed releases over a shared folder, without a server.")
Folder = Annotated[Path, typer.Argument(help="The site's folder.", show_default=False)]
Config = Annotated[Path, typer.Argument(help="The run: a TOML or YAML file, the same at every site.")]
Shared = Annotated[Path, typer.Argument(help="The shared folder.", show_default=False)]


@app.command("export")
def export(folder: Folder, config: Config, shared: Shared, sets: Sets = None, fmt: Format = "table") -> None:
    """Make this site's release of the current round and leave it, signed, in the shared folder."""
    from prismfl.report.tables import simple_table
    from prismfl.site.bundle import Peer

    peer = Peer.open(folder, terminal.config(config, sets))
    round = peer.state().round
    path = peer.export(shared)
    found = {"round": round + 1, "bundle": str(path), "bytes": path.stat().st_size}
    terminal.emit(found, fmt, lambda: simple_table("Exported", [found]))


@app.command("import")
def import_(
    folder: Folder,
    config: Config,
    shared: Shared,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="A site that all agreed to leave out; repeatable.")
    ] = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """Check everybody's bundle of the current round and take the step to the next."""
    from prismfl.report.tables import simple_table
    from prismfl.site.bundle import Peer

    done = Peer.open(folder, terminal.config(config, sets)).absorb(shared, without=without or ())
    found = {
        "round": done.round + 1,
        "sites": ", ".join(done.sites),
        "state": done.digest[:16],
        "finished": done.finished,
    }
    terminal.emit(found, fmt, lambda: simple_table("Imported", [found]))
    for site, why in done.dropped.items():
        terminal.warn(f"{site} does not count in round {done.round + 1}: {why}")
