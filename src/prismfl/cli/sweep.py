"""`prismfl sweep`: methods over epsilons, seeds and encoders, ending in a table and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import (
    Channels,
    Classes,
    ConfigFile,
    Data,
    DataDir,
    Delta,
    Format,
    ImageSize,
    Label,
    Ledger,
    Model,
    Public,
    Records,
    Schema,
    Sets,
    SiteCap,
    Sites,
    Split,
    Test,
    Unit,
)
from prismfl.errors import PrismError, UserError

NOT_ASKED = ("config", "out", "epsilon", "seeds", "methods", "encoders", "sets", "yes", "fmt")
"""Arguments that are no keys of a run."""


def sweep(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the sweep: a run directory for each run.")],
    config: ConfigFile = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", "-e", help="Budgets, as in 0.2,1,5.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, as in 0,1,2; two or more give intervals.")] = None,
    methods: Annotated[str | None, typer.Option("--methods", "-m", help="Names, as in prism,dp-fedavg.")] = None,
    encoders: Annotated[
        str | None, typer.Option(help="Public encoders, as in none,efficientnet-lite0, for methods that take one.")
    ] = None,
    data: Data = None,
    schema: Schema = None,
    label: Label = None,
    classes: Classes = None,
    records: Records = None,
    unit: Unit = None,
    image_size: ImageSize = None,
    channels: Channels = None,
    test: Test = None,
    delta: Delta = None,
    sites: Sites = None,
    split: Split = None,
    model: Model = None,
    public: Public = None,
    device: Annotated[str | None, typer.Option(help="cpu, or a device that torch knows (default: cpu).")] = None,
    data_dir: DataDir = None,
    ledger: Ledger = None,
    cap: SiteCap = None,
    sets: Sets = None,
    yes: Annotated[bool, typer.Option("--yes", help="On your own data: spend what the whole sweep costs.")] = False,
    fmt: Format = "table",
) -> None:
    """Run methods over epsilons and seeds, and show accuracy against privacy.

    The same command goes on where it was stopped. A --set goes to every method that has the setting;
    --set METHOD.key=value to that one.
    """
    given = {key: value for key, value in locals().items() if key not in NOT_ASKED}
    given = terminal.at_hand(config, sets, given)
    from prismfl.report.tradeoff import picture_of, sweep_facts, sweep_table
    from prismfl.runs.sweep import Axes, go, listed, planned, price_words

    axes = Axes(
        listed(methods, str, "--methods"),
        listed(epsilon, float, "--epsilon"),
        listed(seeds, int, "--seeds"),
        listed(encoders, str, "--encoders"),
    )
    asked = planned(out, axes, file=config, sets=sets or [], given=given)
    price = price_words(asked)
    if price is not None and not yes:
        raise UserError(f"{price}. Start it with --yes.")
    if price is not None:
        terminal.say(f"{price}.")
    with terminal.progress() as progress:
        go(asked, progress=progress, warn=terminal.warn, tell=terminal.say)
    facts = sweep_facts(out, on_site=True)
    picture = picture_of(facts, out)
    terminal.emit(facts, fmt, lambda: sweep_table(facts))
    if picture is not None:
        terminal.say(f"Picture: {picture}. A page: prismfl report {out}")
    failed = sum(cell["status"] == "failed" for cell in facts["cells"])
    if failed:
        raise PrismError(f"{failed} of {len(facts['cells'])} runs failed; the same command tries them again.")
