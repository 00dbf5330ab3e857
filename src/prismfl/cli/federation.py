"""`prismfl federation`: found one, with a folder for each party."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import options, terminal

app = typer.Typer(no_args_is_help=True, help="Found a federation: a folder for each party, keys on its own machine.")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A new folder.", show_default=False)],
    server: Annotated[str, typer.Option(help="HOST:PORT that sites will call.")],
    site: Annotated[list[str], typer.Option("--site", help="A site's name; repeatable.")],
    method: Annotated[str, typer.Option(help="The method that all agree on.")],
    epsilon: Annotated[float, typer.Option(help="The run's budget at each site.")],
    data: Annotated[str, typer.Option(help="A data set's name for a trial, or a word for the sites' own.")] = "own",
    delta: Annotated[float, typer.Option(help="The delta of the budget.")] = 1e-5,
    cap: Annotated[float | None, typer.Option(help="Most that may ever be spent at a site; default: epsilon.")] = None,
    schema: options.Schema = None,
    classes: options.Classes = None,
    records: options.Records = None,
    image_size: options.ImageSize = None,
    channels: options.Channels = None,
    features: options.Features = None,
    approval: Annotated[bool, typer.Option(help="Whether each release waits for a person at its site.")] = True,
) -> None:
    """Write a folder for each party: its own file with comments, and its steps. No key is made here."""
    from prismfl.server.founding import Agreed, new_federation

    told = options.data_keys({"schema": schema, "classes": classes, "records": records})
    agreed = Agreed(
        server,
        site,
        method,
        data,
        epsilon,
        delta,
        cap,
        image_size=image_size,
        channels=channels,
        features=features,
        approval=approval,
        **told,
    )
    for place in new_federation(folder, agreed):
        terminal.out(f"{place}: send it to its party; what to do is in {place / 'STEPS.md'}")


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Your folder of `federation new`.", show_default=False)],
    ca: Annotated[Path | None, typer.Option(help="At a site: the server's ca.pem.")] = None,
) -> None:
    """On your own machine: make your keys, and at a site read the data."""
    from prismfl.server.founding import make_keys

    made = make_keys(folder, ca=ca, say=terminal.say)
    terminal.say(f"made keys in {folder / 'keys'}; send {made} to the other side, and nothing else of that folder")
