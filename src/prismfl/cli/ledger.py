"""`prismfl ledger`: what was spent, of the user's own ledger or of others; and its caps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format
from prismfl.errors import UserError
from prismfl.report.words import NO_PROTECTION

if TYPE_CHECKING:
    from prismfl.privacy.ledger.balances import DatasetStatus

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
    from prismfl.privacy.ledger.book import Ledger
    from prismfl.report.tables import simple_table

    file = path or _mine()
    found: list[dict[str, Any]] = []
    if path is not None or _begun(file):
        with Ledger.open(file, create=False) as opened:
            found = [_facts(status) for status in opened.status()]
    rows = [_row(facts) for facts in found]
    whole = {"ledger": str(file), "data sets": found}
    terminal.emit(whole, fmt, lambda: simple_table("What was spent on your data", rows, caption=str(file)))
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
    from prismfl.privacy.ledger.admission import Cap
    from prismfl.privacy.ledger.book import Ledger
    from prismfl.report.tables import simple_table

    with Ledger.open(path or _mine(), create=False) as opened:
        status = _named(opened.status(), dataset)
        terms = status.cap or (status.spent[0] if status.spent else None)
        before = status.cap.delta if status.cap else 1e-5
        new = Cap(epsilon, before if delta is None else delta)
        if terms is not None:
            new = Cap(new.epsilon, new.delta, terms.unit, terms.relation)
        opened.set_cap(status.dataset, new)
        facts = _facts(_named(opened.status(), status.dataset))
    terminal.emit(facts, fmt, lambda: simple_table("Ledger", [_row(facts)]))


@app.command()
def close(run: Annotated[str, typer.Argument(help="The run's name, or how it begins.")], path: At = None) -> None:
    """Close a run that was given up: what it released stays charged, what it only holds is free again."""
    from prismfl.privacy.ledger.book import Ledger

    with Ledger.open(path or _mine(), create=False) as opened:
        names = {name for status in opened.status() for name in status.open_runs if name.startswith(run)}
        if len(names) != 1:
            raise UserError(f"Expected one open run whose name starts with '{run}', found {len(names)}.")
        opened.close(names.pop(), forget=True)
    terminal.say("closed; the budget that it held and did not spend is free again")


@app.command()
def status(path: Other = None, fmt: Format = "table") -> None:
    """Spent and left, a row for each data set."""
    from prismfl.report.ledgers import status_rows
    from prismfl.report.tables import simple_table

    rows = status_rows(path or _mine())
    terminal.emit(rows, fmt, lambda: simple_table("Ledger", rows))


@app.command()
def verify(path: Other = None, fmt: Format = "table") -> None:
    """Check the hash chain and the anchor of every ledger."""
    from prismfl.report.ledgers import verify_rows
    from prismfl.report.tables import simple_table

    rows = verify_rows(path or _mine())
    terminal.emit(rows, fmt, lambda: simple_table("Ledger verified", rows))


@app.command()
def history(path: Other = None, fmt: Format = "table") -> None:
    """Every entry, oldest first."""
    from prismfl.report.ledgers import history_rows
    from prismfl.report.tables import simple_table

    rows = history_rows(path or _mine())
    terminal.emit(rows, fmt, lambda: simple_table("Ledger history", rows))


def _mine() -> Path:
    from prismfl.privacy.ledger.place import ledger_path

    return ledger_path(create=False)


def _begun(file: Path) -> bool:
    """A lost ledger whose anchor is there has begun: opening it says what is wrong."""
    return file.exists() or file.with_name(file.name + ".anchor").exists()


def _named(found: list[DatasetStatus], dataset: str) -> DatasetStatus:
    for status in found:
        if dataset == status.dataset or dataset in status.names:
            return status
    known = ", ".join(f"{status.dataset} ({', '.join(status.names)})" for status in found) or "none"
    raise UserError(f"No data set '{dataset}' in the ledger (known: {known}).")


def _facts(status: DatasetStatus) -> dict[str, Any]:
    """One data set in numbers; the epsilon is the total of all that was ever released, None without a guarantee."""
    from prismfl.privacy import account

    delta = status.cap.delta if status.cap else 1e-5
    spent = [account.epsilon(cost, delta) for cost in status.spent]
    terms = status.spent or ((status.cap,) if status.cap else ())
    return {
        "id": status.dataset,
        "names": list(status.names),
        "records": status.records,
        "unit": ", ".join(f"{one.unit} ({one.relation})" for one in terms) or "record",
        "cap": status.cap.epsilon if status.cap else None,
        "epsilon spent": [epsilon if math.isfinite(epsilon) else None for epsilon in spent] or [0.0],
        "delta": delta,
        "budget held": None if status.used is None else min(1.0, status.used),
        "runs": len(status.open_runs) + len(status.closed_runs),
        "open runs": list(status.open_runs),
        "releases": status.releases,
        "seeded": status.seeded,
    }


def _row(facts: dict[str, Any]) -> dict[str, Any]:
    spent = ["∞ (no DP guarantee)" if epsilon is None else f"{epsilon:.4g}" for epsilon in facts["epsilon spent"]]
    return {
        "data set": f"{facts['id']}: {', '.join(facts['names'])}",
        "known records and units": facts["records"],
        "epsilon spent": ", ".join(spent) + (f" ({NO_PROTECTION})" if facts["seeded"] else ""),
        "cap": "none" if facts["cap"] is None else f"{facts['cap']:g}",
        "delta": f"{facts['delta']:g}",
        "unit": facts["unit"],
        "runs": facts["runs"],
        "releases": facts["releases"],
    }
