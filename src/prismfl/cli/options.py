"""Options that several commands take, with the same words everywhere. What is not given comes from the config file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Format = Annotated[str, typer.Option("--format", help="table, or json: one document on stdout.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Override a.b=c; repeatable.")]
ConfigFile = Annotated[Path | None, typer.Argument(help="TOML or YAML file.", show_default=False)]
DataDir = Annotated[str | None, typer.Option(help="Where data files lie (default: PRISMFL_DATA).")]

Method = Annotated[
    str | None,
    typer.Option(
        "--method", "-m", help="A name that `prismfl methods` lists, or your own: pkg.mod:METHOD (default: prism)."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", "-d", help="A name that `prismfl data` lists, or a path to your own data (default: mnist-5k)."
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
        help="How records are dealt to the sites: iid, dirichlet(alpha=0.5), pathological(classes_per_site=2), shards, "
        "fedlap, natural(COLUMN) (default: iid)."
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
        help="Public encoder that images are looked at through: scattering, efficientnet-lite0, your own "
        "pkg.mod:build, FILE.onnx or FILE.pt (=SHA256), several joined by '+'; auto: a pretrained one if installed "
        "(default: none)."
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
