"""`prismfl predict`: what the model of a finished run says of records."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import DataDir


def predict(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    data: Annotated[str, typer.Argument(help="A folder of images, npz, CSV, Parquet, or a data set's name.")],
    model: Annotated[
        str | None, typer.Option("--model", help="head, linear or network (default: the one that the run recommends).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A new .csv or .jsonl file (default: stdout).")
    ] = None,
    fmt: Annotated[str | None, typer.Option("--format", help="csv or jsonl (default: by the file's name).")] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="Label column of a table (default: as the run's schema has it).")
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Also say how often it is right on records with a label.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Classify records with the model of a finished run: one line a record, with a probability for each class."""
    from prismfl.files.fresh import new_text
    from prismfl.report.tables import scores_table
    from prismfl.runs.opened import open_run
    from prismfl.runs.predicting import format_of, predict_records

    form, found = format_of(out, fmt), open_run(run)
    chosen = found.model if model is None else found.model_named(model)
    with terminal.progress() as progress, nullcontext(sys.stdout) if out is None else new_text(out) as file:
        told = predict_records(
            chosen, data, file, fmt=form, score=score, label=label, data_dir=data_dir, progress=progress
        )
    terminal.say(f"{told.records} records classified by model '{told.model}'" + (f": {out}" if out else ""))
    for why, count in told.left_out.items():
        terminal.say(f"{count} left out: {why}")
    if told.scores is not None:
        terminal.show(scores_table(chosen.classes, told.scores, records=told.scored), stderr=out is None)
