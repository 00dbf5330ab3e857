"""`prismfl new`: a guided set-up of own data, ending in files that every other command reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import (
    Channels,
    Classes,
    Delta,
    Encoder,
    Epsilon,
    ImageSize,
    Label,
    Method,
    Model,
    Public,
    Records,
    Schema,
    Sites,
    Split,
    Test,
    Unit,
    data_keys,
)
from prismfl.stages import listening

if TYPE_CHECKING:
    from prismfl.runs.interview import Inquiry

NOT_ASKED = ("data", "column", "look", "yes", "force")
"""Arguments that are no keys of a run."""


def new(
    data: Annotated[Path, typer.Argument(help="A folder of class folders, npz, CSV or Parquet.", show_default=False)],
    label: Label = None,
    classes: Classes = None,
    records: Records = None,
    unit: Unit = None,
    image_size: ImageSize = None,
    channels: Channels = None,
    schema: Schema = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="What a column of a table may hold, repeatable: age=18..100,integer,missing=60 or sex=female,male; "
            "note=- leaves one out (default: asked, or drafted with --look).",
        ),
    ] = None,
    test: Test = None,
    sites: Sites = None,
    split: Split = None,
    method: Method = None,
    model: Model = None,
    public: Public = None,
    encoder: Encoder = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    look: Annotated[
        bool | None,
        typer.Option(
            "--look/--no-look",
            help="Whether records may be read to draft types, categories and sizes (default: asked; with --yes no).",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the options, and what is proposed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite prismfl.toml and schema.toml.")] = False,
) -> None:
    """Set up your own data: what must be declared is asked, checked on site, and written to prismfl.toml.

    From then on plan, run, synth, partition and site init in this folder need no option.
    """
    given = data_keys({key: value for key, value in locals().items() if key not in NOT_ASKED})
    from prismfl.data.layout import layout_of
    from prismfl.runs.declared_files import refuse_there, write_set_up
    from prismfl.runs.interview import Interview
    from prismfl.runs.setting_up import check_set_up, set_up

    here = Path()
    layout = layout_of(data)
    terminal.say(f"{layout.words()}. Only names and headers were looked at.")
    allowed = _allowed() if look is None and not yes and layout.form != "npz" and schema is None else bool(look)
    asked = Interview(given, None if yes else _ask, terminal.say)
    made = set_up(layout, asked, allowed=allowed, columns=column or [], folder=here)
    if not force:
        refuse_there(made, here)
    terminal.say("Reading the data once by what is declared; nothing is charged.")
    with terminal.progress() as progress, listening(progress):
        _, notices = check_set_up(made, here)
    for line in notices:
        terminal.warn(line)
    for path in write_set_up(made, here, force=force):
        terminal.say(f"wrote {path}")
    if allowed and layout.form == "table":
        terminal.warn(
            "schema.toml was drafted by looking at the records: it is private until each of its lines is confirmed."
        )
    terminal.say("Next, in this folder: prismfl plan, then prismfl run; or prismfl synth for a synthetic copy.")


def _allowed() -> bool:
    terminal.say(
        "A draft of types, categories and sizes needs a look at the records; it stays private until confirmed."
    )
    return typer.confirm("May they be read for it?", default=False, err=True)


def _ask(question: Inquiry) -> str:
    """One answer of the person at the terminal; empty is the proposal."""
    terminal.say(f"\n{question.why}")
    shown = "" if question.proposal is None else f" [{question.shown}]"
    words: str = typer.prompt(f"{question.text}{shown}", default="", show_default=False, err=True)
    return words
