"""`prismfl attack RUN -a inversion|property|gan`: what a model tells of a class or a column, a release of a site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = ("inversion", "property", "gan")
SITES = 12


def attack_population(path: Path, name: str, *, records: int, seed: int) -> dict[str, Any]:
    """One of the attacks above on a run; result and picture go to RUN/attacks/."""
    from prismfl import runtime
    from prismfl.adversary.audits.gan import SHOWN, draw_classes
    from prismfl.adversary.audits.inversion import infer_property, invert
    from prismfl.data.pictures import grid, save_sheet
    from prismfl.runs.reopen import reopen

    run = reopen(path)
    runtime.tune(run.config.threads)
    if name == "property":
        found, picture = infer_property(run, sites=SITES, records=records, seed=seed), None
    elif name == "gan":
        found, picture = draw_classes(run, seed=seed)
    else:
        found, picture = invert(run, records=records, seed=seed)
    (path / "attacks").mkdir(exist_ok=True)
    run.directory.write_json(f"attacks/{name}.json", found)
    files = [path / "attacks" / f"{name}.json"]
    if picture is not None:
        files.append(path / "attacks" / f"{name}.png")
        save_sheet(grid(picture, 2 * SHOWN if name == "gan" else len(picture) // 2), files[-1])
    return {"run": str(path), **found, "files": [str(f) for f in files]}
