"""`prismfl figures`: pictures of one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format
from prismfl.errors import UserError

RECORDS = 512


def figures(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; images are shown of the first.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder (default: figures in the first run).")] = None,
    on_site: Annotated[
        bool, typer.Option("--on-site", help="With accuracy on own records and gradient norms; never to be sent.")
    ] = False,
    fmt: Format = "table",
) -> None:
    """Curves over rounds, epsilon and bytes; trust regions; synthetic images and their pixels at three stages."""
    from prismfl.report import figures as draw
    from prismfl.report.tables import simple_table

    folder = out or runs[0] / "figures"
    named = draw.named(runs)
    first = next(iter(named.values()))
    made = {
        "progress": draw.progress(named, folder / f"{'on-site-' if on_site else ''}progress.png", on_site=on_site),
        "trust region": draw.trust_region(named, folder / "trust-region.png"),
        "images at three stages": draw.stages(first, folder / "stages.png"),
        "pixel values": draw.pixels(first, folder / "pixels.png"),
    }
    if on_site:
        made["gradient norms"] = draw.gradient_norms(_norms(runs[0]), folder / "on-site-gradient-norms.png")
    rows = [{"figure": what, "file": str(path)} for what, path in made.items() if path is not None]
    if made["progress"] is None:
        terminal.say("progress: measured on this site only; see it with --on-site")
    terminal.emit(rows, fmt, lambda: simple_table("Figures", rows))


def _norms(path: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Norms by layer of the gradient on each site's records and on its images, at the first kept round's model."""
    import torch

    from prismfl.core.payloads import SyntheticSet
    from prismfl.nets.classifier import build
    from prismfl.rng import Key
    from prismfl.runs.reopen import reopen

    run = reopen(path)
    kept = [m for m in run.directory.messages() if m.file is not None]
    start = next((m for m in kept if m.direction == "down"), None)
    params = {} if start is None else run.directory.payloads(start)
    if start is None or "model" not in params:
        raise UserError(f"The run in '{path}' kept no round with a model.")
    task, data, found = run.job.task, run.dataset, {}
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    for name, rows in zip(task.sites, run.parts):
        sent = [m for m in kept if (m.direction, m.site, m.round) == ("up", name, start.round)]
        images = next(
            (p for m in sent for p in run.directory.payloads(m).values() if isinstance(p, SyntheticSet)), None
        )
        if images is not None:
            own = torch.as_tensor(rows)[:RECORDS]
            pair = ((data.x_train[own], data.y_train[own]), (images.x, images.hard_y))
            model = params["model"].to("cpu")
            real, made = ([float(g.norm()) for g in classifier.gradient(model, x, y).values()] for x, y in pair)
            found[name] = (real, made)
    if not found:
        raise UserError(f"The run in '{path}' kept no synthetic images.")
    return found
