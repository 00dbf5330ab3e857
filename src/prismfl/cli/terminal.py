"""Where output goes: results to stdout, words and the progress bar to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismfl.cli.options import ConfigFile as ConfigFile
from prismfl.cli.options import Format as Format
from prismfl.cli.options import Sets as Sets
from prismfl.cli.options import data_keys
from prismfl.errors import UserError

if TYPE_CHECKING:
    from prismfl.runs.config import RunConfig


def say(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(line + "\n")


def warn(line: str) -> None:
    """Write a warning to stderr."""
    say(f"warning: {line}")


def out(text: str) -> None:
    """Write a result to stdout."""
    sys.stdout.write(text + "\n")


def show(table: Any, *, stderr: bool = False) -> None:
    """A table for people: on stdout, or beside a result that goes there."""
    from rich.console import Console

    Console(stderr=stderr).print(table)


def emit(value: Any, fmt: str, table: Any) -> None:
    """`value` as JSON on stdout, or `table()` for people."""
    if fmt == "json":
        out(json.dumps(value, indent=2, allow_nan=False))
    elif fmt == "table":
        from rich.console import Console

        Console().print(table())
    else:
        raise UserError(f"Expected --format table or json, got '{fmt}'.")


def emit_result(result: dict[str, Any], fmt: str) -> None:
    """A run's result; the tables are loaded for whoever looks at one."""

    def table() -> Any:
        from prismfl.report.tables import result_table

        return result_table(result)

    emit(result, fmt, table)


def rows(title: str, shown: list[dict[str, Any]], fmt: str, *, value: Any = None, caption: str | None = None) -> None:
    """A table of `shown`; as JSON these rows, or the `value` that they are taken from."""
    from prismfl.report.tables import simple_table

    emit(shown if value is None else value, fmt, lambda: simple_table(title, shown, caption=caption))


def config(file: Path | None, sets: list[str] | None) -> RunConfig:
    """The config of a run over sites: no code that it names is imported."""
    from prismfl.runs.config import written
    from prismfl.runs.planning import find_method

    found = written(file, sets or [], {})
    find_method(found.method)
    return found


def at_hand(file: Path | None, sets: list[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by its keys; where neither a file nor data were, on top of this folder's prismfl.toml."""
    from prismfl.runs.here import with_here

    return with_here(file, sets or [], data_keys(given), say)


@contextmanager
def progress() -> Iterator[Any]:
    """A bar on stderr: what, how far, how long. Where nobody would see it, nothing is loaded to draw it."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
