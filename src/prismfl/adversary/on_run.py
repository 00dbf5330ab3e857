"""Attacks on a run or on foreign synthetic data: every result goes to RUN/attacks/ and back to whoever asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from prismfl import runtime
from prismfl.adversary.attack import ATTACKS, COPIES
from prismfl.adversary.cases import Asked, Case, Progress, Scene, foreign
from prismfl.adversary.cases.membership import SYNTHETIC, copies_of, views_of
from prismfl.adversary.scores import Found, Scored
from prismfl.adversary.scores.membership import Members, shown
from prismfl.data.pictures import grid, save_sheet
from prismfl.errors import UserError
from prismfl.rng import Key
from prismfl.runs.reopen import reopen

EVERY = "membership"
"""Stands for all attacks of this kind."""
# What people see of an inverted gradient; the JSON form has everything.
COLUMNS = {
    "site": "site",
    "round": "round",
    "gradient": "gradient",
    "records": "n",
    "mse": "MSE",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "labels": "labels",
    "recovered": "found",
}


@dataclass(frozen=True)
class Report:
    """`data` for machines; a title, rows (or one line) and some words below for people."""

    data: Found
    title: str = ""
    rows: tuple[Found, ...] = ()
    line: str = ""
    below: tuple[str, ...] = ()


def attack_run(path: Path, name: str, asked: Asked, progress: Progress = lambda *_: None) -> Report:
    """One attack by name, or every attack on members, on the run at `path`."""
    if name != EVERY and name not in ATTACKS:
        raise UserError(f"Unknown attack '{name}'; choose one of {', '.join(offered())}.")
    run = reopen(path)
    runtime.tune(run.config.threads)
    scene = Scene(run, asked, progress)
    if name == EVERY or ATTACKS[name].needs.kind == EVERY:
        return _members(scene, name)
    scored = ATTACKS[name].on(scene)
    return _gradients(scene, scored) if ATTACKS[name].needs.kind == "gradient" else _population(scene, scored)


def offered() -> tuple[str, ...]:
    """Names as the command line takes them, `membership` before those it stands for."""
    found = list(ATTACKS)
    found.insert(next(i for i, name in enumerate(found) if ATTACKS[name].needs.kind == EVERY), EVERY)
    return tuple(found)


def _members(scene: Scene, name: str) -> Report:
    path = scene.run.directory.path
    every = [known for known, attack in ATTACKS.items() if attack.needs.kind == EVERY]
    results, files = [], []
    for one in every if name == EVERY else (name,):
        scored = ATTACKS[one].on(scene)
        results.append(scored.found)
    for found in results:
        files += _save(scene, found["attack"], Scored(found))
    rows = [shown(found) for found in results]
    data = {"run": str(path), "attack": name, "results": results, "rows": rows, "files": files}
    return Report(data, f"membership in {path}", tuple(rows))


def _population(scene: Scene, scored: Scored) -> Report:
    path, found = scene.run.directory.path, scored.found
    data = {"run": str(path), **found, "files": _save(scene, found["attack"], scored)}
    rows, words = tuple(found.get("rows", ())), found["words"]
    return Report(data, f"{found['attack']} of {path}", rows, line=words, below=(words,) if rows else ())


def _gradients(scene: Scene, scored: Scored) -> Report:
    """A table and a picture of originals and reconstructions; where there is nothing to attack, no file."""
    asked, run, found = scene.asked, scene.run, scored.found
    name = found["attack"]
    data = {
        "run": str(run.directory.path),
        "method": run.job.method.name,
        "attack": name,
        "adversary": asked.adversary,
    }
    if "rows" not in found:
        return Report({**data, "why_not": found["words"].removeprefix("does not apply: ")}, line=found["words"])
    data = {**data, "words": found["words"], "rows": found["rows"]}
    file = f"{name}-{asked.adversary}" + ("-adaptive" if asked.adaptive else "")
    files = _save(scene, file, Scored(data, scored.sheet))
    rows = tuple({short: row.get(key, "-") for key, short in COLUMNS.items()} for row in found["rows"])
    below = tuple(f"wrote {written}" for written in files)
    return Report({**data, "files": files}, f"{name} by the {asked.adversary}", rows, below=below)


def _save(scene: Scene, name: str, scored: Scored) -> list[str]:
    directory = scene.run.directory
    directory.write_json(f"attacks/{name}.json", scored.found)
    files = [directory.path / "attacks" / f"{name}.json"]
    if scored.sheet is not None:
        files.append(directory.path / "attacks" / f"{name}.png")
        save_sheet(grid(scored.sheet.images, scored.sheet.columns), files[-1], scale=scored.sheet.scale)
    return [str(file) for file in files]


def attack_files(synthetic: Path, members: Path, others: Path, *, seed: int) -> Report:
    """The attacks on a synthetic set by itself: .npz, .npy or CSV files of records of one shape."""
    made, inside, outside = (foreign.read_rows(p) for p in (synthetic, members, others))
    results = attack_set(made, inside, outside, seed=seed)
    rows = [shown(found) for found in results]
    data = {"synthetic": str(synthetic), "attack": "synthetic", "results": results, "rows": rows, "files": []}
    return Report(data, f"attacks on {synthetic}", tuple(rows))


def attack_set(made: torch.Tensor, members: torch.Tensor, others: torch.Tensor, *, seed: int = 0) -> list[Found]:
    """Synthetic data made by any tool: no run, no cost, hence no bound."""
    c = foreign.candidates(made, members, others)
    view, control = views_of(c, made, Key.seed(seed).child("foreign"))
    case = Case(view, Members(c.members, c.members, None, 1e-5), control)
    told = [attack.tried(case).found for attack in ATTACKS.values() if attack.needs is SYNTHETIC]
    return [*told, COPIES.tried(copies_of(c, made)).found]
