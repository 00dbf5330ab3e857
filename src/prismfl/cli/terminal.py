"""What every command shares: where output goes, the progress bar, the config from file and options."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prismfl.errors import UserError

if TYPE_CHECKING:
    from prismfl.runs.config import RunConfig

Format = Annotated[str, typer.Option("--format", help="table, or json: one document on stdout.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Override a.b=c; repeatable.")]
ConfigFile = Annotated[Path | None, typer.Argument(help="TOML or YAML file.", show_default=False)]


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def warn(line: str) -> None:
    say(f"warning: {line}")


def out(text: str) -> None:
    sys.stdout.write(text + "\n")


def emit(value: Any, fmt: str, table: Any) -> None:
    """`value` as JSON on stdout, or `table()` for people."""
    if fmt == "json":
        out(json.dumps(value, indent=2, allow_nan=False))
    elif fmt == "table":
        from rich.console import Console

        Console().print(table())
    else:
        raise UserError(f"Expected --format table or json, got '{fmt}'.")


def config(file: Path | None, sets: list[str] | None, **given: Any) -> RunConfig:
    from prismfl.runs.config import RunConfig, merge, read, validate
    from prismfl.runs.planning import find_method

    base = read(file) if file else {}
    base.update({k: v for k, v in given.items() if v is not None})
    method = find_method(str(base.get("method", RunConfig.model_fields["method"].default)))
    values = merge(base, sets or [], settings=method.settings)
    found: RunConfig = validate(RunConfig, values, str(file or "the command line"))
    return found


@contextmanager
def progress() -> Iterator[Any]:
    """A bar on stderr: what, how far, how long."""
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
