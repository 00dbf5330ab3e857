"""Small finished runs whose models are used: PRISM on digits, and a private network on a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import prismfl
from prismfl.methods import METHODS


def prism_run(out: Path, **changes: Any) -> Path:
    """A PRISM run of a second, with a head, a linear model, a network and synthetic images."""
    values: dict[str, Any] = {
        "data": "digits",
        "sites": 2,
        "subset": 400,
        "epsilon": 20.0,
        "public_count": 60,
        "model": "convnet:4",
        "settings": {**METHODS["prism"].tiny, "rank": 12, "atoms": 8, "embeddings": 20, "deliver": "linear"},
    }
    values["settings"].pop("sigma", None)
    prismfl.run("prism", **{**values, **changes, "out": str(out)})
    return out


def table_run(out: Path, **changes: Any) -> Path:
    """A network on the rows of a table."""
    values: dict[str, Any] = {"data": "wine-cultivar", "sites": 2, "epsilon": 8.0, "rounds": 2, "steps": 5}
    prismfl.run("dp-fedavg", **{**values, **changes, "out": str(out)})
    return out
