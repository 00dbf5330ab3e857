"""`prismfl run`: a method on data, from config to result."""

from __future__ import annotations

from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import (
    ConfigFile,
    Data,
    DataDir,
    Delta,
    Encoder,
    Epsilon,
    Format,
    Images,
    Method,
    Model,
    Sets,
    Sites,
    Split,
    Tuning,
)


def run(
    config: ConfigFile = None,
    method: Method = None,
    data: Data = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    sites: Sites = None,
    split: Split = None,
    model: Model = None,
    public: Annotated[str | None, typer.Option(help="Public images: data set, folder or 'procedural'.")] = None,
    images: Images = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of every public choice; on your own data also of the noise, a simulation (default: 0)."),
    ] = None,
    encoder: Encoder = None,
    tuning: Tuning = None,
    device: Annotated[str | None, typer.Option(help="cpu, or a device that torch knows (default: cpu).")] = None,
    data_dir: DataDir = None,
    ledger: Annotated[str | None, typer.Option(help="Folder of ledgers that last beyond this run.")] = None,
    cap: Annotated[float | None, typer.Option(help="Each site's cap on epsilon over all runs.")] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="The run directory (default: runs/METHOD/DATA_epsE-TIME)."),
    ] = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """Run a method on a data set and keep everything in a run directory."""
    given = {key: value for key, value in locals().items() if key not in ("config", "sets", "fmt", "images")}
    from prismfl.report.tables import result_table
    from prismfl.runs import choosing, simulate

    wanted = [] if images is None else [f"settings.images={images}"]
    asked, chosen = choosing.ask(config, [*wanted, *(sets or [])], given)
    looked = choosing.choose_encoder(asked, chosen)
    with terminal.progress() as progress:
        result = simulate.run(
            asked, method=chosen, encoder=looked, progress=progress, warn=terminal.warn, tell=terminal.say
        ).as_dict()
    terminal.emit(result, fmt, lambda: result_table(result))
