"""`prismfl demo`: the main job on embedded data, beside the baselines, in about two minutes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format

COMMON: dict[str, Any] = {
    "data": "mnist-5k",
    "sites": 5,
    "split": "pathological(2)",
    "model": "convnet:16",
}
EPSILON = 3.0
RUNS: dict[str, dict[str, Any]] = {
    "prism": {"epsilon": EPSILON, "settings": {"images": 20, "steps": 120, "train_steps": 400}},
    "dp-fedavg": {"epsilon": EPSILON},
    "fedavg": {"settings": {"rounds": 8, "epochs": 1}},
    "local-only": {"settings": {"epochs": 4}},
}


def demo(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the runs and the report.")] = None,
    fmt: Format = "table",
) -> None:
    """Five sites with two digits each learn all ten: PRISM beside the baselines, ending in a table and a report."""
    from prismfl.report.comparison import compare_runs, comparison_table
    from prismfl.report.dossier import dossier
    from prismfl.report.page import write
    from prismfl.runs import planning, simulate

    folder = out or Path("runs") / f"demo-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    terminal.say(
        "Five sites, two digits each, 800 records a site. No record leaves a site; what leaves is in the second column."
    )
    paths = []
    with terminal.progress() as progress:
        for name, more in RUNS.items():
            path = folder / name
            config = planning.configure({"method": name, **COMMON, **more, "out": str(path)})
            simulate.run(config, progress=_named(name, progress), tell=_chosen(name))
            paths.append(path)
    rows = compare_runs(paths)
    terminal.emit(rows, fmt, lambda: comparison_table(rows))
    page, _ = write([dossier(path, on_site=False) for path in paths], folder / "report.html")
    terminal.say(f"Synthetic images: {folder / 'prism' / 'gen' / 'sample.png'}")
    terminal.say(f"Report for people: {page}")


def _chosen(name: str) -> Any:
    return lambda line: terminal.say(f"{name} chose {line}")


def _named(name: str, progress: Any) -> Any:
    return lambda what, done, total: progress(f"{name}: {what}", done, total)
