"""Options that several commands take, with the same words everywhere. What is not given comes from the config file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli.completing import (
    complete_data,
    complete_encoder,
    complete_method,
    complete_public,
    complete_split,
)

Format = Annotated[str, typer.Option("--format", help="table, or json: one document on stdout.")]
Log = Annotated[str, typer.Option("--log", help="text, or json: one object a line, for a log collector.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Override a.b=c; repeatable.")]
ConfigFile = Annotated[Path | None, typer.Argument(help="TOML or YAML file.", show_default=False)]
DataDir = Annotated[str | None, typer.Option(help="Where data files lie (default: PRISMFL_DATA).")]

Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        autocompletion=complete_method,
        help="A name that `prismfl methods` lists, or your own: pkg.mod:METHOD (default: prism).",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        autocompletion=complete_data,
        help="A name that `prismfl data` lists, or a path to your own data (default: mnist-5k).",
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option("--epsilon", "-e", help="Total budget of each site (default: none; a private method needs one)."),
]
Delta = Annotated[float | None, typer.Option(help="The delta of the budget, below 1 / records (default: 1e-05).")]
Sites = Annotated[int | None, typer.Option("--sites", "-n", help="How many sites are simulated (default: 5).")]
Split = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete_split,
        help="How records are dealt to the sites: iid, dirichlet(alpha=0.5), pathological(classes_per_site=2), shards, "
        "fedlap, natural(COLUMN) (default: iid).",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="convnet, lenet, mlp or logreg; a number sets the width (default: convnet:32, for tables an mlp)."
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete_encoder,
        help="Public encoder that images are looked at through: scattering, efficientnet-lite0, your own "
        "pkg.mod:build, FILE.onnx or FILE.pt (=SHA256), several joined by '+'; auto: a pretrained one if installed "
        "(default: none).",
    ),
]
Tuning = Annotated[
    str | None,
    typer.Option(
        help="auto: settings that are not given are rehearsed on public data; fixed: plain defaults (default: auto)."
    ),
]
Images = Annotated[
    int | None,
    typer.Option(min=1, help="Synthetic images of each class, where the method makes some (default: the method's)."),
]

# What is declared about own data, with the same names in every command that takes data.
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        help="Declared columns of a table; draft one with `prismfl schema` (default: none; a table needs one).",
    ),
]
Label = Annotated[str | None, typer.Option("--label", help="Label column of a table (default: the schema's).")]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--classes",
        help="Declared classes, in order: a,b or repeated (default: the schema's, or the names of class folders).",
    ),
]
Records = Annotated[
    int | None,
    typer.Option(
        "--records", min=1, help="Public, rounded number of records at each site (default: none; own data need one)."
    ),
]
AllRecords = Annotated[
    int | None,
    typer.Option("--records", min=1, help="Public, rounded number of records (default: the schema's train_size)."),
]
Unit = Annotated[
    str | None,
    typer.Option("--unit", help="What is protected: record, or a column such as patient_id (default: record)."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", help="Columns to take alone, beside label and unit: a,b or repeated (default: all)."),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", help="Columns to leave out: a,b or repeated (default: none).")
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        "--image-size", min=8, max=1024, help="Pixels a side that own images are brought to (default: as all have it)."
    ),
]
Channels = Annotated[
    int | None,
    typer.Option("--channels", min=1, max=3, help="1 (grey) or 3 (colour) for own images (default: as all have it)."),
]
Features = Annotated[
    int | None,
    typer.Option("--features", min=1, help="Numbers in each record of an npz table (default: none, it holds images)."),
]
Test = Annotated[
    str | None,
    typer.Option(
        "--test",
        help="Test part of own data that have none: a share, or a column that marks it with 1, true or test "
        "(default: 0.2).",
    ),
]
Public = Annotated[
    str | None,
    typer.Option(
        "--public",
        autocompletion=complete_public,
        help="Public images: data set, folder or 'procedural' (default: drawn ones, for methods that use some).",
    ),
]
Ledger = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Folder of ledgers that last (default: own data your one ledger, PRISMFL_LEDGER; else the run's own).",
    ),
]
SiteCap = Annotated[
    float | None, typer.Option("--cap", help="Each site's cap on epsilon over all runs (default: none).")
]


def several(given: Sequence[str] | None) -> list[str]:
    """Names that were given with commas between, or one after the other."""
    return [name.strip() for part in given or () for name in part.split(",") if name.strip()]


def data_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the keys that a config has for them: `--schema` is `schema_file`; classes may have commas between."""
    found = {"schema_file" if key == "schema" else key: value for key, value in given.items()}
    if found.get("classes"):
        found["classes"] = several(found["classes"])
    else:
        found["classes"] = None
    return found
