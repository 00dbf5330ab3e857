"""`prismfl synth`: a private data set in, a synthetic one with a certificate out. Images and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format, Sets
from prismfl.errors import UserError

TABLES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")


def synth(
    data: Annotated[str, typer.Argument(help="CSV, Parquet, image folder, npz, or a data set's name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file; for images a folder.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy budget of this release.")],
    delta: Annotated[float, typer.Option()] = 1e-5,
    schema: Annotated[Path | None, typer.Option("--schema", help="Declared columns of a table.")] = None,
    records: Annotated[int | None, typer.Option(help="Public (rounded) number of records of a table.")] = None,
    rows: Annotated[int | None, typer.Option(help="Synthetic rows of a table (default: as many as records).")] = None,
    public: Annotated[str | None, typer.Option(help="Public images for image data.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable simulation; without it, noise comes from the operating system.")
    ] = None,
    ledger: Annotated[str | None, typer.Option(help="Folder of ledgers that last.")] = None,
    cap: Annotated[float | None, typer.Option(help="Cap on epsilon over all releases of these records.")] = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """Make a synthetic copy of a data set under a privacy budget, with certificate.json."""
    from prismfl.report.tables import simple_table, total_words

    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "out": out,
        "seed": seed or 0,
        "deployed": seed is None,
        "ledger": ledger,
        "cap": cap,
        "sets": sets or [],
    }
    if is_table(data):
        from prismfl.synth.tables import synth_table

        if public is not None:
            raise UserError("Expected no --public for a table; it belongs to images.")
        found = synth_table(
            data,
            schema=schema,
            records=records,
            rows=rows,
            warn=terminal.warn,
            **shared,
        )
    else:
        from prismfl.synth.folders import synth_images

        for name, given in (("--schema", schema), ("--records", records), ("--rows", rows)):
            if given is not None:
                raise UserError(f"Expected no {name} for images; it belongs to tables.")
        found = synth_images(data, public=public, **shared)
    plain = {key: str(value) for key, value in found.items() if not isinstance(value, dict | list)}
    plain["your data so far"] = total_words(found["total_so_far"])
    shown = [{"what": key, "value": value} for key, value in plain.items()]
    terminal.emit(found, fmt, lambda: simple_table("Synthetic data", shown))


def is_table(data: str) -> bool:
    """Whether a path or a data set's name is a table."""
    from prismfl.data import DATASETS

    if data in DATASETS:
        return DATASETS[data].kind == "table"
    return data.lower().endswith(TABLES)
