"""A small finished run that several tests look at, and how it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismfl.runs import simulate
from prismfl.runs.config import RunConfig


def small_config(out: Path, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "method": "dp-fedavg",
        "data": "digits",
        "model": "logreg",
        "sites": 2,
        "subset": 200,
        "epsilon": 3.0,
        "seed": 1,
        "settings": {"rounds": 2, "steps": 2, "batch": 32},
        "out": str(out),
    }
    return RunConfig(**{**values, **changes})


def small_run(out: Path, **changes: Any) -> Path:
    simulate.run(small_config(out, **changes))
    return out
