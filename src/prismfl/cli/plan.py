"""`prismfl plan`: the price before anything is spent."""

from __future__ import annotations

from prismfl.cli import terminal
from prismfl.cli.options import (
    Channels,
    Classes,
    ConfigFile,
    Data,
    Delta,
    Encoder,
    Epsilon,
    Format,
    ImageSize,
    Label,
    Method,
    Model,
    Records,
    Schema,
    Sets,
    Sites,
    Test,
    Tuning,
    Unit,
)


def plan(
    config: ConfigFile = None,
    method: Method = None,
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
    model: Model = None,
    encoder: Encoder = None,
    tuning: Tuning = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """What a run will cost and send, from public numbers only: no record is read."""
    given = {key: value for key, value in locals().items() if key not in ("config", "sets", "fmt")}
    given = terminal.at_hand(config, sets, given)
    from prismfl.report.tables import plan_table
    from prismfl.runs import choosing, planning

    asked, chosen = choosing.ask(config, sets or [], given)
    found = planning.plan(asked, chosen, choosing.choose_encoder(asked, chosen))
    terminal.emit(found.__dict__, fmt, lambda: plan_table(found.__dict__))
    for line in found.warnings:
        terminal.warn(line)
