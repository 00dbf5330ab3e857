"""`prismfl synth`: a private data set in, a synthetic one with a certificate out. Images and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Drop, Encoder, Images, Keep, several
from prismfl.cli.terminal import Format, Sets
from prismfl.errors import UserError
from prismfl.stages import listening


def synth(
    data: Annotated[str, typer.Argument(help="CSV, Parquet, image folder, npz, or a data set's name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file; for images a folder.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy budget of this release.")],
    delta: Annotated[float, typer.Option()] = 1e-5,
    schema: Annotated[Path | None, typer.Option("--schema", help="Declared columns of a table.")] = None,
    records: Annotated[int | None, typer.Option(help="Public (rounded) number of records of a table.")] = None,
    rows: Annotated[int | None, typer.Option(help="Synthetic rows of a table (default: as many as records).")] = None,
    method: Annotated[
        str | None, typer.Option(help="For a table: dp-marginals (with the extra tables), dp-copula or ddp-vae.")
    ] = None,
    keep: Keep = None,
    drop: Drop = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a table that lies at --out.")] = False,
    public: Annotated[str | None, typer.Option(help="Public images for image data.")] = None,
    encoder: Encoder = None,
    images: Images = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable simulation; without it, noise comes from the operating system.")
    ] = None,
    ledger: Annotated[str | None, typer.Option(help="Folder of ledgers that last.")] = None,
    cap: Annotated[float | None, typer.Option(help="Cap on epsilon over all releases of these records.")] = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """Make a synthetic copy of a data set under a privacy budget, with a certificate."""
    from prismfl.report.tables import simple_table, total_words

    options: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed, "ledger": ledger, "cap": cap}
    if is_table(data):
        from prismfl.synth.tables import preferred, synth_table

        refuse({"--public": public, "--encoder": encoder, "--images": images}, "a table", "images")
        options["method"] = method or preferred(terminal.warn)
        with terminal.progress() as progress, listening(progress):
            options |= {"keep": several(keep), "drop": several(drop), "force": force, "warn": terminal.warn}
            found = synth_table(data, schema=schema, records=records, rows=rows, out=out, sets=sets or [], **options)
    else:
        from prismfl.runs import choosing
        from prismfl.synth.images import synth_images

        own = {
            "--schema": schema,
            "--records": records,
            "--rows": rows,
            "--keep": keep,
            "--drop": drop,
            "--method": method,
        }
        refuse({**own, "--force": force or None}, "images", "tables")
        options["encoder"] = choosing.looked_through("prism", encoder)
        wanted = [] if images is None else [f"images={images}"]
        with terminal.progress() as progress, listening(progress):
            found = synth_images(data, public=public, out=out, sets=[*wanted, *(sets or [])], **options)
    plain = {key: str(value) for key, value in found.items() if not isinstance(value, dict | list)}
    plain["your data so far"] = total_words(found["total_so_far"])
    shown = [{"what": key, "value": value} for key, value in plain.items()]
    terminal.emit(found, fmt, lambda: simple_table("Synthetic data", shown))


def refuse(given: Mapping[str, object], data: str, others: str) -> None:
    """An option that this kind of data has no use for."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"Expected no {name} for {data}; it belongs to {others}.")


def is_table(data: str) -> bool:
    """Whether a path or a data set's name is a table."""
    from prismfl.data import DATASETS
    from prismfl.data.found import TABLES

    return DATASETS[data].kind == "table" if data in DATASETS else data.lower().endswith(TABLES)
