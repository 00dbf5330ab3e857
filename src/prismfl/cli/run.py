"""`prismfl run`: a method on data, from config to result."""

from __future__ import annotations

from typing import Annotated

import typer

from prismfl import runtime
from prismfl.cli import several, terminal
from prismfl.cli.completing import complete_method
from prismfl.cli.options import (
    Channels,
    Classes,
    ConfigFile,
    Data,
    DataDir,
    Delta,
    Encoder,
    Epsilon,
    Format,
    Images,
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
    Tuning,
    Unit,
)
from prismfl.privacy import account, beside

NOT_ASKED = ("config", "sets", "fmt", "images", "seeds", "yes", "method")
"""Arguments that are no keys of one run."""


def run(
    config: ConfigFile = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            autocompletion=complete_method,
            help="A name that `prismfl methods` lists, or your own: pkg.mod:METHOD; repeat it to compare several "
            "(default: prism).",
        ),
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
    epsilon: Epsilon = None,
    delta: Delta = None,
    sites: Sites = None,
    split: Split = None,
    model: Model = None,
    public: Public = None,
    images: Images = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of every public choice; on your own data also of the noise, a simulation (default: 0)."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds, from --seed on, or which: 0,5,7; two or more give intervals.")
    ] = None,
    encoder: Encoder = None,
    tuning: Tuning = None,
    device: Annotated[str | None, typer.Option(help="cpu, or a device that torch knows (default: cpu).")] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, help="Processes that simulate sites side by side; the result is the same (default: physical cores)."
        ),
    ] = None,
    data_dir: DataDir = None,
    ledger: Ledger = None,
    cap: SiteCap = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="The run directory (default: runs/METHOD/DATA_epsE-TIME)."),
    ] = None,
    sets: Sets = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Several runs on your own data: spend what they cost together.")
    ] = False,
    fmt: Format = "table",
) -> None:
    """Run a method on a data set and keep everything in a run directory; several methods or seeds end in one table."""
    given = {key: value for key, value in locals().items() if key not in NOT_ASKED}
    beside.start(account.served)
    given = terminal.at_hand(config, sets, given)
    with runtime.loading():
        from prismfl.runs import choosing, simulate

    wanted = [] if images is None else [f"settings.images={images}"]
    chosen_seeds = several.seeds_of(seeds, seed)
    if len(set(method or ())) > 1 or len(chosen_seeds) > 1 or "," in (seeds or ""):
        asked_all = {key: value for key, value in given.items() if key not in ("out", "seed")}
        lines = [*wanted, *(sets or [])]
        place = several.Several(tuple(dict.fromkeys(method or ())), chosen_seeds, out=out, yes=yes)
        return several.run_all(place, file=config, sets=lines, given=asked_all, fmt=fmt)
    if method:
        given["method"] = method[0]
    asked, chosen = choosing.ask(config, [*wanted, *(sets or [])], given)
    if asked.workers is None:
        asked = asked.model_copy(update={"workers": 0})
    looked = choosing.choose_encoder(asked, chosen)
    with terminal.progress() as progress:
        result = simulate.run(
            asked, method=chosen, encoder=looked, progress=progress, warn=terminal.warn, tell=terminal.say
        ).as_dict()
    terminal.emit_result(result, fmt)
