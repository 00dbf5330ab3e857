"""`prismfl audit`: claimed against measured; exit code 1 when the measurement exceeds the claim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format
from prismfl.errors import UserError

WITHIN = "within the claim"


def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|METHOD|steps|all",
            help="A run directory, a method's name, 'steps' for the mechanisms, or 'all'.",
        ),
    ] = None,
    hostile: Annotated[
        bool, typer.Option("--hostile", help="Play a hostile server against the sites of every method instead.")
    ] = False,
    methods: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="With --hostile: only this method; repeatable.")
    ] = None,
    processes: Annotated[
        bool, typer.Option("--processes", help="With --hostile: also over real processes with TLS.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="With --hostile: write the table to this file as JSON.")] = None,
    epsilon: Annotated[
        float, typer.Option("--epsilon", "-e", help="The budget claimed by a method's tiny setting.")
    ] = 4.0,
    delta: Annotated[float, typer.Option()] = 1e-5,
    canaries: Annotated[int | None, typer.Option(help="Marked records (default: 1000; 400 for a run).", min=20)] = None,
    worlds: Annotated[int, typer.Option(help="Also so many runs with and without one record.", min=0)] = 0,
    seed: Annotated[int, typer.Option()] = 0,
    fmt: Format = "table",
) -> None:
    """Measure the leakage of a run, a method or the mechanisms from below, and hold it against the claim."""
    if hostile != (target is None):
        raise UserError("Give a run, a method, 'steps' or 'all' to audit; or --hostile (-m METHOD for some methods).")
    if target is None:
        _hostile(methods or [], processes=processes, out=out, fmt=fmt)
        return
    if target == "steps":
        rows = _steps(seed)
    elif target != "all" and Path(target).is_dir():
        rows = _run(Path(target), canaries=canaries or 400, seed=seed)
    else:
        rows = _methods(target, epsilon=epsilon, delta=delta, canaries=canaries or 1000, worlds=worlds, seed=seed)
    terminal.emit(rows, fmt, lambda: _table(rows))
    if not all(row["passed"] for row in rows):
        terminal.say("prismfl: measured more leakage than claimed.")
        raise typer.Exit(1)


def _methods(
    target: str, *, epsilon: float, delta: float, canaries: int, worlds: int, seed: int
) -> list[dict[str, Any]]:
    from prismfl.adversary.audits.one_run import audit_method
    from prismfl.adversary.audits.trial import auditable
    from prismfl.adversary.audits.two_worlds import audit_two_worlds
    from prismfl.methods import METHODS
    from prismfl.runs.planning import find_method

    methods = list(METHODS.values()) if target == "all" else [find_method(target)]
    rows = []
    for method in methods:
        if target == "all" and auditable(method) is not None:
            terminal.say(f"{method.name}: {auditable(method)}")
            continue
        rows.append(audit_method(method, epsilon=epsilon, delta=delta, canaries=canaries, seed=seed).as_dict())
        if worlds:
            rows.append(audit_two_worlds(method, epsilon=epsilon, delta=delta, runs=worlds, seed=seed).as_dict())
    return rows


def _hostile(names: list[str], *, processes: bool, out: Path | None, fmt: str) -> None:
    from prismfl.adversary.audits.hostile import Row, audit_hostile, audited, save
    from prismfl.methods import METHODS
    from prismfl.runs.planning import find_method

    chosen = [find_method(name) for name in names] or [method for method in METHODS.values() if audited(method)]
    unprotected = [method.name for method in chosen if not audited(method)]
    if unprotected:
        raise UserError(f"Method '{unprotected[0]}' promises a site nothing that a server could break.")
    rows: list[Row] = []
    for method in chosen:
        for kind in method.kinds:
            rows.append(audit_hostile(method, kind=kind))
            terminal.say(f"{rows[-1].method}: {'held' if rows[-1].passed else 'BROKE'} ({rows[-1].seconds:.0f} s)")
    if processes:
        from prismfl.adversary.audits.hostile_processes import OVER_PROCESSES, audit_processes

        asked = [name for name in OVER_PROCESSES if not names or name in names]
        rows += [audit_processes(METHODS[name], terminal.say) for name in asked]
    if out is not None:
        save(rows, out)
    terminal.emit([row.as_dict() for row in rows], fmt, lambda: _hostile_table(rows))
    for row in rows:
        for attack, cell in row.cells.items():
            for what in cell.broke:
                terminal.say(f"{row.method}, {attack}: {what}")
    if not all(row.passed for row in rows):
        terminal.say("prismfl: a hostile server got more than a site may give.")
        raise typer.Exit(1)


def _hostile_table(rows: list[Any]) -> Any:
    from prismfl.report.tables import simple_table

    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    shown = []
    for row in rows:
        cells = {name: _cell(row.cells.get(name)) for name in names}
        shown.append({"method": row.method, **cells, "s": f"{row.seconds:.0f}"})
    return simple_table("A hostile server: verdict, questions/charges", shown)


def _cell(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{'held' if cell.held else 'BROKE'} {cell.questions}/{cell.charges}"


def _run(path: Path, *, canaries: int, seed: int) -> list[dict[str, Any]]:
    from prismfl.adversary.audits.one_run import audit_run
    from prismfl.runs.reopen import reopen

    run = reopen(path)
    found = audit_run(run, canaries=canaries, seed=seed).as_dict()
    (path / "audits").mkdir(exist_ok=True)
    run.directory.write_json("audits/one-run.json", found)
    return [found]


def _steps(seed: int) -> list[dict[str, Any]]:
    from prismfl.adversary.audits.steps import audit_steps

    return [step.as_dict() for step in audit_steps(seed=seed)]


def _table(rows: list[dict[str, Any]]) -> Any:
    from prismfl.report.tables import simple_table

    if rows and "mechanism" in rows[0]:
        shown = [
            {
                "mechanism": r["mechanism"],
                "claimed mu": f"{r['claimed']:.3g}",
                "measured": f"{r['low']:.3g} to {r['high']:.3g}",
                "verdict": "passed" if r["passed"] else "FAILED",
            }
            for r in rows
        ]
        return simple_table("Step audit", shown)
    shown = [
        {
            "method": r["method"] + (" (two worlds)" if r["audit"] == "two worlds" else ""),
            "claimed": _number(r["claimed"]),
            "at least": _number(r["lower"]),
            "mu claimed": "-" if r["claimed_mu"] is None else f"{r['claimed_mu']:.2f}",
            "mu estimated": "-" if r["estimate_mu"] is None else "{:.2f}-{:.2f}".format(*r["estimate_mu"]),
            "no noise": "-" if r["control"] is None else _number(r["control"]),
            "verdict": ("passed" if r["passed"] else "FAILED") + ("" if r["words"] == WITHIN else f": {r['words']}"),
        }
        for r in rows
    ]
    return simple_table("Audit: epsilon claimed and measured", shown)


def _number(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3g}"
