"""`prismfl ledger`: what was spent, of the user's own ledger or of others; and its caps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format

if TYPE_CHECKING:
    from prismfl.privacy.ledger.care import Copied

app = typer.Typer(
    help="What was spent on your data: the ledger and its caps; status, verify, history, head, backup, restore, move, "
    "export."
)

Other = Annotated[
    Path | None, typer.Argument(help="A ledger file, or a folder of them (a run directory will do). Default: yours.")
]
Fresh = Annotated[Path, typer.Argument(help="A new folder for the copy.", show_default=False)]
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
    """Set a data set's cap, on the record; a site.toml cannot go beyond it. Runs under way keep what they reserved."""
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


@app.command()
def head(
    place: Annotated[
        Path | None, typer.Argument(help="A file on another disk or machine; from now on the head is kept there too.")
    ] = None,
    path: At = None,
    fmt: Format = "table",
) -> None:
    """Number and head of the last entry; with a file, keep them there too: it tells an older copy that was put back."""
    from prismfl.privacy.ledger import care

    file = path or _mine()
    if place is not None:
        care.keep_head(file, place)
        terminal.say(f"the head is kept at {place.absolute()} from now on, and compared whenever the ledger is opened")
    seq, head = care.head_of(file)
    terminal.rows("Head of the ledger", [{"entries": seq, "head": head}], fmt, caption=str(file))


@app.command()
def backup(folder: Fresh, path: At = None, fmt: Format = "table") -> None:
    """A consistent copy with its anchor, in a new folder; also while other commands run."""
    from prismfl.privacy.ledger import care

    _copied("Backup", care.backup(path or _mine(), folder), fmt)


@app.command()
def move(folder: Fresh, path: At = None, fmt: Format = "table") -> None:
    """A copy for another machine: `restore` it there. What stays here can be read and spends nothing more."""
    from prismfl.privacy.ledger import care

    _copied("Moved; restore it on the other machine", care.move(path or _mine(), folder), fmt)


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="What `backup` or `move` has made.", show_default=False)],
    head: Annotated[Path | None, typer.Option(help="The head that is kept elsewhere; it is kept there on.")] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="Entries may be missing: nothing is spent until each cap is set by hand.")
    ] = False,
    path: At = None,
    fmt: Format = "table",
) -> None:
    """Put a copy back, if nothing can have been spent after it was made."""
    from prismfl.privacy.ledger import care
    from prismfl.privacy.ledger.place import ledger_path

    done = care.restore(folder, path or ledger_path(), head=head, lost=lost)
    _copied("Restored", done, fmt)
    if done.lost:
        terminal.warn("entries are lost: decide what may still be spent with prismfl ledger cap DATASET EPSILON")


@app.command()
def export(
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")],
    year: Annotated[int | None, typer.Option(min=2000, max=9999, help="Default: the year before this one.")] = None,
    key: Annotated[Path | None, typer.Option(help="An Ed25519 key. Default: one beside the ledger, made once.")] = None,
    path: At = None,
) -> None:
    """A year for an auditor: signed JSON and a page, without a number of records."""
    from prismfl.report.ledger_export import write_export

    for file in write_export(path or _mine(), folder, year=year, key=key):
        terminal.out(str(file))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A JSON file that `export` has written.", show_default=False)],
    key: Annotated[Path, typer.Option(help="The public key, as the ledger's keeper has told it.")],
) -> None:
    """For an auditor: whether an export is what the keeper of that key has signed."""
    from prismfl.report.ledger_export import check_export

    told = check_export(file, key)
    terminal.say(
        f"signed by this key: year {told['year']}, entries {told['entries']['first']} to {told['entries']['last']}"
    )


def _copied(title: str, copied: Copied, fmt: str) -> None:
    row = {"ledger": str(copied.path), "entries": copied.entries, "head": copied.head, "lost": copied.lost}
    terminal.rows(title, [row], fmt)


def _mine() -> Path:
    from prismfl.privacy.ledger.place import ledger_path

    return ledger_path(create=False)
