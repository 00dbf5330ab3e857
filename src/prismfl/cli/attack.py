"""`prismfl attack RUN`: what an adversary makes of a run. The attacks are those of `prismfl.adversary.attack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format
from prismfl.errors import UserError


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
    from prismfl.adversary.cases import Asked
    from prismfl.adversary.on_run import attack_files, attack_run
    from prismfl.report.tables import simple_table

    if synthetic is not None or members is not None or non_members is not None:
        if synthetic is None or members is None or non_members is None:
            raise UserError("Give --synthetic, --members and --non-members together.")
        report = attack_files(synthetic, members, non_members, seed=seed)
    elif path is None:
        raise UserError("Give a run directory, or --synthetic with --members and --non-members.")
    else:
        asked = Asked(
            adversary=adversary,
            round=round,
            victims=victims,
            restarts=restarts,
            iterations=iterations,
            known_labels=known_labels,
            adaptive=adaptive,
            records=records,
            shadows=shadows,
            seed=seed,
        )
        with terminal.progress() as progress:
            report = attack_run(path, attack, asked, progress)
    rows = list(report.rows)
    terminal.emit(report.data, fmt, lambda: simple_table(report.title, rows) if rows else report.line)
    for line in report.below:
        terminal.say(line)
