"""`prismfl ledger`: what was spent, of the user's own ledger or of others; and its caps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format

app = typer.Typer(help="What was spent on your data: the ledger and its caps; status, verify, history.")

Other = Annotated[
    Path | None, typer.Argument(help="A ledger file, or a folder of them (a run directory will do). Default: yours.")
]
At = Annotated[Path | None, typer.Option("--path", help="Another ledger file. Default: yours.")]


@app.callback(invoke_without_command=True)
def ledger(context: typer.Context, path: At = None, fmt: Format = "table") -> None:
    """What was spent on your data, over all runs: a row for each data set."""
    if context.invoked_subcommand is not None:
        return
    from prismfl.report.ledgers import dataset_row, overview

    file = path or _mine()
    found = overview(file, begun=path is not None)
    whole = {"ledger": str(file), "data sets": found}
    shown = [dataset_row(facts) for facts in found]
    terminal.rows("What was spent on your data", shown, fmt, value=whole, caption=str(file))
    if not found:
        terminal.say(f"nothing was spent yet; the ledger will be {file}")


@app.command()
def cap(
    dataset: Annotated[str, typer.Argument(help="A data set's id or one of its names.")],
    epsilon: Annotated[float, typer.Argument(help="The most that may ever be spent on it.")],
    delta: Annotated[float | None, typer.Option(help="Default: that of the cap before, else 1e-5.")] = None,
    path: At = None,
    fmt: Format = "table",
) -> None:
    """Set a data set's cap, on the record. Runs that are under way keep what they reserved."""
    from prismfl.privacy.ledger.keeping import set_cap
    from prismfl.report.ledgers import dataset_facts, dataset_row

    facts = dataset_facts(set_cap(path or _mine(), dataset, epsilon, delta))
    terminal.rows("Ledger", [dataset_row(facts)], fmt, value=facts)


@app.command()
def close(run: Annotated[str, typer.Argument(help="The run's name, or how it begins.")], path: At = None) -> None:
    """Close a run that was given up: what it released stays charged, what it only holds is free again."""
    from prismfl.privacy.ledger.keeping import close_run

    close_run(path or _mine(), run)
    terminal.say("closed; the budget that it held and did not spend is free again")


@app.command()
def status(path: Other = None, fmt: Format = "table") -> None:
    """Spent and left, a row for each data set."""
    from prismfl.report.ledgers import status_rows

    terminal.rows("Ledger", status_rows(path or _mine()), fmt)


@app.command()
def verify(path: Other = None, fmt: Format = "table") -> None:
    """Check the hash chain and the anchor of every ledger."""
    from prismfl.report.ledgers import verify_rows

    terminal.rows("Ledger verified", verify_rows(path or _mine()), fmt)


@app.command()
def history(path: Other = None, fmt: Format = "table") -> None:
    """Every entry, oldest first."""
    from prismfl.report.ledgers import history_rows

    terminal.rows("Ledger history", history_rows(path or _mine()), fmt)


def _mine() -> Path:
    from prismfl.privacy.ledger.place import ledger_path

    return ledger_path(create=False)
