"""`prismfl attack RUN`: what an adversary makes of a run. Each attack is a function in `ATTACKS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.attack_inversion import NAMES as POPULATION
from prismfl.cli.attack_inversion import attack_population
from prismfl.cli.attack_membership import NAMES as MEMBERSHIP
from prismfl.cli.attack_membership import attack_foreign, attack_members
from prismfl.cli.terminal import Format
from prismfl.errors import UserError

if TYPE_CHECKING:
    import torch

    from prismfl.adversary.attacks.gradient_inversion import Effort
    from prismfl.adversary.view import Target, View
    from prismfl.core.job import Job
    from prismfl.core.records import Records
    from prismfl.runs.config import RunConfig
    from prismfl.runs.directory import RunDirectory


# What the terminal shows of a row; the JSON form has everything.
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
class Options:
    """What the command line asks of an attack."""

    attack: str
    adversary: str
    round: int | None
    victims: int
    restarts: int
    iterations: int
    known_labels: bool
    adaptive: bool
    seed: int


def attack(
    path: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run directory.", show_default=False)] = None,
    attack: Annotated[
        str,
        typer.Option(
            "--attack",
            "-a",
            help="On gradients: dlg, idlg, inverting. On members: membership (all of them), loss, gradient-norm, lira, "
            "lira-offline, rmia, nearest, calibrated, domias, copies, decoder. On classes, columns, sites: inversion, "
            "property. A site draws classes that it does not hold: gan.",
        ),
    ] = "dlg",
    adversary: Annotated[str, typer.Option(help="server, peer or outsider.")] = "server",
    round: Annotated[int | None, typer.Option(help="Which round (default: the first that was kept whole).")] = None,
    victims: Annotated[int, typer.Option(help="Attack so many sites at most.")] = 6,
    restarts: Annotated[int, typer.Option(help="Random starts a victim.")] = 2,
    iterations: Annotated[int, typer.Option(help="Steps of the attack.")] = 300,
    known_labels: Annotated[bool, typer.Option(help="Give the attacker the labels.")] = False,
    adaptive: Annotated[bool, typer.Option(help="Let the attack know of FedEM's perturbation.")] = False,
    seed: Annotated[int, typer.Option()] = 0,
    records: Annotated[int, typer.Option(help="Members, and as many others, to tell apart.", min=10)] = 1000,
    shadows: Annotated[int, typer.Option(help="Shadow models of lira and rmia.", min=2)] = 16,
    synthetic: Annotated[Path | None, typer.Option(help="Instead of a run: synthetic records of any tool.")] = None,
    members: Annotated[Path | None, typer.Option(help="With --synthetic: records that were used.")] = None,
    non_members: Annotated[Path | None, typer.Option(help="With --synthetic: records that were not.")] = None,
    fmt: Format = "table",
) -> None:
    """Attack what crossed the wire of a run, as the server, a peer or an outsider saw it, and score the loot."""
    from prismfl.report.tables import simple_table

    if synthetic is not None or members is not None or non_members is not None:
        if synthetic is None or members is None or non_members is None:
            raise UserError("Give --synthetic, --members and --non-members together.")
        report = attack_foreign(synthetic, members, non_members, seed=seed)
        terminal.emit(report, fmt, lambda: simple_table(f"attacks on {synthetic}", report["rows"]))
        return
    if path is None:
        raise UserError("Give a run directory, or --synthetic with --members and --non-members.")
    if attack in MEMBERSHIP:
        report = attack_members(path, attack, records=records, shadows=shadows, seed=seed)
        terminal.emit(report, fmt, lambda: simple_table(f"membership in {path}", report["rows"]))
        return
    if attack in POPULATION:
        report = attack_population(path, attack, records=records, seed=seed)
        shown = [*report.get("rows", [])]
        terminal.emit(report, fmt, lambda: simple_table(f"{attack} of {path}", shown) if shown else report["words"])
        if shown:
            terminal.say(report["words"])
        return
    if attack not in ATTACKS:
        known = (*ATTACKS, *MEMBERSHIP, *POPULATION)
        raise UserError(f"Unknown attack '{attack}'; choose one of {', '.join(known)}.")
    asked = Options(attack, adversary, round, victims, restarts, iterations, known_labels, adaptive, seed)
    report = ATTACKS[attack](path, asked)
    if report.get("why_not") is not None:
        line = f"does not apply: {report['why_not']}"
        terminal.emit(report, fmt, lambda: line)
        return
    shown = [{short: row.get(name, "-") for name, short in COLUMNS.items()} for row in report["rows"]]
    terminal.emit(report, fmt, lambda: simple_table(f"{attack} by the {adversary}", shown))
    for file in report["files"]:
        terminal.say(f"wrote {file}")


def invert_gradients(path: Path, asked: Options) -> dict[str, Any]:
    """DLG, iDLG or Inverting Gradients on one round of a run; a table and a picture go to RUN/attacks/."""
    from prismfl import runtime
    from prismfl.adversary.view import look
    from prismfl.cli.attack_truth import job_of
    from prismfl.runs.directory import RunDirectory

    directory = RunDirectory.open(path)
    job, config = job_of(directory)
    runtime.tune(config.threads)
    view = look(directory, job, adversary=asked.adversary, round=asked.round)
    report = {"run": str(path), "method": job.method.name, "attack": asked.attack, "adversary": asked.adversary}
    if view.why_not is not None:
        return {**report, "why_not": view.why_not}
    effort = _effort(job, asked)
    rows, pictures = _invert(directory, job, config, view=view, asked=asked, effort=effort)
    report["words"] = _words(rows, asked.adversary)
    files = _save(directory, asked, {**report, "rows": rows}, pictures)
    return {**report, "rows": rows, "files": files}


def _words(rows: list[dict[str, Any]], adversary: str) -> str:
    """The line that a report shows."""
    found, records = sum(row.get("recovered", 0) for row in rows), sum(row.get("records", 0) for row in rows)
    likeness = [row["ssim"] for row in rows if isinstance(row.get("ssim"), float)]
    alike = f", mean SSIM {sum(likeness) / len(likeness):.2f}" if likeness else ""
    return f"{found} of {records} attacked records found by the {adversary}{alike}"


ATTACKS: dict[str, Callable[[Path, Options], dict[str, Any]]] = {
    "dlg": invert_gradients,
    "idlg": invert_gradients,
    "inverting": invert_gradients,
}


def _effort(job: Job, asked: Options) -> Effort:
    from prismfl.adversary.attacks.gradient_inversion import Effort
    from prismfl.methods.gradients.fedem import Perturbing

    if asked.restarts < 1 or asked.iterations < 1 or asked.victims < 1:
        raise UserError(
            "Expected restarts, iterations and victims >= 1, "
            f"got {asked.restarts}, {asked.iterations} and {asked.victims}."
        )
    against = job.settings if isinstance(job.settings, Perturbing) else None
    if asked.adaptive and against is None:
        raise UserError(f"--adaptive is for runs of fedem; this run is of '{job.method.name}'.")
    return Effort(restarts=asked.restarts, iterations=asked.iterations, against=against if asked.adaptive else None)


def _invert(
    directory: RunDirectory, job: Job, config: RunConfig, *, view: View, asked: Options, effort: Effort
) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """All victims of a round at once (they share the model); the truth serves to score, and as known labels."""
    import torch

    from prismfl.adversary.attacks.gradient_inversion import ATTACKS as INVERSIONS
    from prismfl.adversary.attacks.gradient_inversion import Problem, stack
    from prismfl.nets.classifier import build
    from prismfl.rng import Key

    task, targets = job.task, view.targets[: asked.victims]
    truths = _truths(directory, job, config, targets)
    classifier, _ = build(task.model, task.shape, len(task.classes), key=Key.seed(0))
    batch = targets[0].records
    labels = None
    if asked.known_labels:
        if any(len(truth) != batch for truth in truths):
            raise UserError("--known-labels needs batches of a fixed size; this method draws batches of random size.")
        labels = torch.stack([truth.y for truth in truths])
    problem = Problem(
        classifier,
        targets[0].model,
        stack([t.gradient for t in targets]),
        batch,
        task.shape,
        len(task.classes),
        labels,
        rescaled=targets[0].rescaled,
    )
    found = INVERSIONS[asked.attack](problem, effort, key=Key.seed(asked.seed).child("attack"))
    rows, pictures = [], []
    for target, truth, x, y, mismatch in zip(targets, truths, found.x, found.y, found.mismatch):
        rows.append(_row(target, truth, x, y, float(mismatch), data=task.data, features=(classifier, target.model)))
        if len(truth) and len(task.shape) == 3:
            pictures += _pairs(x, truth.x)
    return rows, pictures


def _truths(directory: RunDirectory, job: Job, config: RunConfig, targets: tuple[Target, ...]) -> list[Records]:
    import torch

    from prismfl.adversary.view import kept
    from prismfl.cli.attack_truth import batch_behind, site_records
    from prismfl.core.method import State
    from prismfl.core.records import Records
    from prismfl.runs.records import read_data

    records, found = site_records(job, config, read_data(config)), []
    states, _ = kept(directory)
    for target in targets:
        state = State(target.round, states[target.round])
        parts = [batch_behind(job, records[s], s, state=state, folder=directory.path) for s in target.sites]
        found.append(Records(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts])))
    return found


def _row(
    target: Target, truth: Records, x: torch.Tensor, y: torch.Tensor, mismatch: float, *, data: str, features: Any
) -> dict[str, Any]:
    from prismfl.metrics.leakage import leakage

    row: dict[str, Any] = {
        "site": target.sites[0] if len(target.sites) == 1 else f"{len(target.sites)} others",
        "sites": list(target.sites),
        "round": target.round,
        "gradient": "exact" if target.exact else "from weights",
        "mismatch": round(mismatch, 6),
    }
    if not len(truth):
        return {**row, "records": 0}
    score = leakage((x, y), (truth.x, truth.y), data=data, features=features).as_dict()
    return {**row, **{k: round(v, 4) if isinstance(v, float) else v for k, v in score.items()}}


def _pairs(x: torch.Tensor, truth: torch.Tensor, most: int = 8) -> list[torch.Tensor]:
    """Original and reconstruction side by side, for the first few records of a victim."""
    from prismfl.metrics.leakage import match

    rows, partners = match(x, truth)
    return [image for i, j in list(zip(rows, partners))[:most] for image in (truth[j], x[i])]


def _save(directory: RunDirectory, asked: Options, report: dict[str, Any], pictures: list[torch.Tensor]) -> list[str]:
    import torch

    from prismfl.data.pictures import grid, save_sheet

    name = f"{asked.attack}-{asked.adversary}" + ("-adaptive" if asked.adaptive else "")
    directory.write_json(f"attacks/{name}.json", report)
    files = [str(directory.path / "attacks" / f"{name}.json")]
    if pictures:
        path = directory.path / "attacks" / f"{name}.png"
        save_sheet(grid(torch.stack(pictures), 2), path, scale=3)
        files.append(str(path))
    return files
