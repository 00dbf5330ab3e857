"""`prismfl schema`: a draft of a table's declaration, for a person to confirm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Drop, Keep, Unit, several
from prismfl.errors import UserError

WARNING = (
    "This draft was made by looking at the records: categories and classes in it are private until a person confirms, "
    "from a public document, that they may be known. Bounds are left open for the same reason."
)


def schema(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file.", show_default=False)],
    label: Annotated[
        str | None, typer.Option("--label", help="Label column of the table (default: none, a table without classes).")
    ] = None,
    unit: Unit = None,
    keep: Keep = None,
    drop: Drop = None,
    bounds_from_data: Annotated[
        bool, typer.Option("--bounds-from-data", help="Also write the bounds of the records (private!).")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it (default: stdout).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Draft a schema for a table: types and categories to confirm, bounds to fill in."""
    from prismfl.data.schema_draft import draft

    if out is not None and out.exists() and not force:
        raise UserError(f"'{out}' exists; give --force to overwrite it.")
    person = None if unit == "record" else unit
    text, notes = draft(
        data,
        label=label,
        unit=person,
        bounds_from_data=bounds_from_data,
        keep=several(keep),
        drop=several(drop),
    )
    terminal.warn(WARNING)
    for note in notes:
        terminal.warn(note)
    if out is None:
        terminal.out(text.rstrip())
        return
    out.write_text(text)
    terminal.say(f"wrote {out}")
