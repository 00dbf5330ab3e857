"""`prismfl synth`: a private data set in, a synthetic one with a certificate out. Images, tables and patients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.completing import complete_data
from prismfl.cli.options import (
    AllRecords,
    Channels,
    Classes,
    DataDir,
    Delta,
    Drop,
    Encoder,
    Epsilon,
    Images,
    ImageSize,
    Keep,
    Label,
    Ledger,
    Public,
    Schema,
    Unit,
    several,
)
from prismfl.cli.terminal import Format, Sets
from prismfl.errors import UserError
from prismfl.stages import listening

OWN = ("data", "schema", "label", "classes", "unit", "image_size", "channels", "data_dir")
"""Arguments that say what the data are."""


def synth(
    data: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_data,
            help="CSV, Parquet, image folder, npz, or a data set's name (default: as ./prismfl.toml says).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A .csv or .parquet file; for images a folder (default: synthetic.csv, or the folder synthetic).",
        ),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    schema: Schema = None,
    label: Label = None,
    classes: Classes = None,
    records: AllRecords = None,
    unit: Unit = None,
    image_size: ImageSize = None,
    channels: Channels = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Synthetic rows of a table (default: as many as records, or as many units with their rows)."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="For a table: dp-marginals (with the extra tables), dp-copula or ddp-vae.")
    ] = None,
    keep: Keep = None,
    drop: Drop = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a table that lies at --out.")] = False,
    public: Public = None,
    encoder: Encoder = None,
    images: Images = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeatable simulation (default: none; noise comes from the operating system)."),
    ] = None,
    ledger: Ledger = None,
    cap: Annotated[
        float | None, typer.Option(help="Cap on epsilon over all releases of these records (default: none).")
    ] = None,
    data_dir: DataDir = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """Make a synthetic copy of a data set under a privacy budget, with a certificate."""
    facts = {key: value for key, value in locals().items() if key in OWN}
    given = {"epsilon": epsilon, "delta": delta, "public": public, "encoder": encoder, "cap": cap}
    found = terminal.own_data({**facts, **given})
    patients = is_patients(found["data"], found.get("schema_file"))
    table = not patients and is_table(found["data"])
    if patients:
        refuse({"--label": label, "--classes": classes, "--keep": keep, "--drop": drop}, "patients", "tables")
    elif table:
        no_images = {"--image-size": image_size, "--channels": channels}
        refuse({"--public": public, "--encoder": encoder, "--images": images, **no_images}, "a table", "images")
    else:
        own = {
            "--schema": schema,
            "--label": label,
            "--records": records,
            "--rows": rows,
            "--keep": keep,
            "--drop": drop,
            "--method": method,
        }
        refuse({**own, "--force": force or None}, "images", "tables")
    wanted = _asked(found, out, table=table, force=force)
    options = {key: found[key] for key in ("data", "epsilon", "delta")} | {"out": wanted, "warn": terminal.warn}
    options |= {"seed": seed, "ledger": ledger, "cap": found.get("cap")}
    if patients:
        from prismfl.synth.patients import synth_patients

        options |= {"schema": found.get("schema_file"), "records": records, "rows": rows, "unit": unit}
        options |= {"public": found.get("public"), "encoder": found.get("encoder"), "data_dir": data_dir}
        with terminal.progress() as progress, listening(progress):
            made = synth_patients(**options, sets=sets or [])
    elif table:
        from prismfl.synth.tables import preferred, synth_table

        options |= {key: found.get(key) for key in ("label", "classes", "unit")} | {"records": records, "rows": rows}
        options |= {"schema": found.get("schema_file"), "about": _in_all(found)}
        options["method"] = method or preferred(terminal.warn)
        with terminal.progress() as progress, listening(progress):
            made = synth_table(**options, keep=several(keep), drop=several(drop), force=force, sets=sets or [])
    else:
        from prismfl.runs import choosing
        from prismfl.synth.images import synth_images

        facts = {key: found.get(key) for key in ("classes", "unit", "image_size", "channels", "data_dir")}
        options |= {"records": _in_all(found)}  # of a prismfl.toml: settings are chosen for so many
        options |= {"encoder": choosing.looked_through("prism", found.get("encoder")), "public": found.get("public")}
        lines = [*([] if images is None else [f"images={images}"]), *(sets or [])]
        with terminal.progress() as progress, listening(progress):
            made = synth_images(**options, facts=facts, sets=lines)
    _show(made, fmt)


def _in_all(found: Mapping[str, Any]) -> int | None:
    """The records of all sites that a prismfl.toml declares."""
    from prismfl.runs.config import RunConfig

    return found["records"] * found.get("sites", RunConfig().sites) if found.get("records") else None


def _asked(found: dict[str, Any], out: Path | None, *, table: bool, force: bool) -> Path:
    """Where the copy goes. What a config's own default is, is put in its place."""
    from prismfl.files.fresh import refuse_existing
    from prismfl.runs.config import RunConfig

    if found.get("epsilon") is None:
        raise UserError("Give the privacy budget of this release: --epsilon (say 1.0).")
    found["delta"] = RunConfig().delta if found.get("delta") is None else found["delta"]
    if out is not None:
        return out
    place = Path("synthetic.csv" if table else "synthetic")
    if not force:
        refuse_existing([place])
    return place


def _show(made: Mapping[str, Any], fmt: str) -> None:
    from prismfl.report.tables import simple_table, total_words

    plain = {key: str(value) for key, value in made.items() if not isinstance(value, dict | list)}
    plain["your data so far"] = total_words(made["total_so_far"])
    shown = [{"what": key, "value": value} for key, value in plain.items()]
    terminal.emit(made, fmt, lambda: simple_table("Synthetic data", shown))


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


def is_patients(data: str, schema: str | Path | None) -> bool:
    """Whether records are texts or have several parts: a named set of such, or files whose schema declares them."""
    from prismfl.data import DATASETS
    from prismfl.data.parts_file import is_parted

    return DATASETS[data].parts is not None if data in DATASETS else is_parted(schema)
