"""The facts of a report that need more than the run directory: how the records lie, and private neighbours on site."""

from __future__ import annotations

import base64
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from prismfl.core.records import as_floats
from prismfl.data import DATASETS, summary
from prismfl.data.pictures import grid, save_sheet
from prismfl.errors import UserError
from prismfl.kernels.parts import in_parts
from prismfl.report.editions import Edition, share
from prismfl.report.facts import collect, lacking
from prismfl.runs.reopen import Reopened, reopen

COLUMNS = 10


def dossier(path: Path, *, on_site: bool = False) -> Edition:
    """Everything the page shows. The split of a public benchmark is no secret; own data are not even opened for the
    sharing edition."""
    facts = collect(path)
    facts["utility"]["classes"] = len(facts["config"].get("classes") or ()) or None
    if not on_site and facts["own_data"]:
        return share(facts)
    try:
        run = reopen(path)
        facts["utility"] |= {"classes": len(run.job.task.classes), "names": list(run.job.task.classes)}
        facts["partition"] = _partition(run)
        facts["pictures"] += _neighbours(run) if on_site else []
    except UserError as error:
        facts["missing"].append(lacking("data", error))
    return facts if on_site else share(facts)


def _partition(run: Reopened) -> dict[str, Any]:
    classes = run.dataset.spec.classes
    counts = summary(run.parts, run.dataset.y_train.numpy(), classes)
    where = "a public benchmark, dealt out by the seed" if run.config.data in DATASETS else "on site only, do not send"
    return {
        "title": f"Training records at each site by class ({run.config.split}; {where})",
        "classes": list(classes),
        "rows": [{"site": f"site-{i}", "counts": [int(n) for n in row]} for i, row in enumerate(counts)],
    }


def _neighbours(run: Reopened) -> list[dict[str, Any]]:
    """Each class's first synthetic image above the private record nearest to it."""
    made = run.synthetic if run.directory.load_state() is not None else None
    if made is None or run.job.task.kind != "image":
        return []
    labels = made.hard_y
    first = [int(torch.nonzero(labels == c)[0]) for c in sorted(set(labels.tolist()))][:COLUMNS]
    chosen = made.x[first]
    private = run.dataset.x_train
    distances = [torch.cdist(chosen.flatten(1), as_floats(part).flatten(1)) for part in in_parts(private, 4000)]
    near, where = torch.cat(distances, 1).min(1)
    sheet = grid(torch.cat([chosen, as_floats(private[where])]), len(first))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "neighbours.png"
        save_sheet(sheet, file, scale=3)
        png = base64.b64encode(file.read_bytes()).decode()
    words = "Synthetic images (top) and the private record nearest to each (bottom)"
    words += f"; distances {near.min():.2f} to {near.max():.2f}"
    return [{"title": words, "png": png, "private": True}]
