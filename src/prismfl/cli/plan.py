"""`prismfl plan`: the price before anything is spent."""

from __future__ import annotations

from prismfl.cli import terminal
from prismfl.cli.options import ConfigFile, Data, Delta, Encoder, Epsilon, Format, Method, Model, Sets, Sites, Tuning


def plan(
    config: ConfigFile = None,
    method: Method = None,
    data: Data = None,
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
    from prismfl.report.tables import plan_table
    from prismfl.runs import choosing, planning

    asked, chosen = choosing.ask(config, sets or [], given)
    found = planning.plan(asked, chosen, choosing.choose_encoder(asked, chosen))
    terminal.emit(found.__dict__, fmt, lambda: plan_table(found.__dict__))
    for line in found.warnings:
        terminal.warn(line)
