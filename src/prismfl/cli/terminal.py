"""Where output goes: results to stdout, words and the progress bar to stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismfl.cli.options import ConfigFile as ConfigFile
from prismfl.cli.options import Format as Format
from prismfl.cli.options import Sets as Sets
from prismfl.cli.options import data_keys
from prismfl.errors import UserError

if TYPE_CHECKING:
    from prismfl.runs.config import RunConfig
    from prismfl.transport.watch import Watched

LOGGED = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:,Z]+ (?P<level>[A-Z]+) (?P<words>.*)")


def say(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(line + "\n")


def speaker(fmt: str) -> Callable[[str], None]:
    """What writes lines to stderr: as they are, or each as a JSON object with its time and level."""
    if fmt == "text":
        return say
    if fmt != "json":
        raise UserError(f"Expected --log text or json, got '{fmt}'.")

    def speak(line: str) -> None:
        found = LOGGED.fullmatch(line)
        level, words = (found["level"], found["words"]) if found else ("INFO", line)
        if words.startswith("warning: "):
            level, words = "WARNING", words.removeprefix("warning: ")
        told = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level.lower(), "message": words}
        say(json.dumps(told, ensure_ascii=True))

    return speak


def ago(seconds: float | None) -> str:
    """An age for people."""
    if seconds is None:
        return "never there"
    for most, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < most:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"


def serve(port: int, watched: Watched) -> None:
    """Answer a monitor until Ctrl-C."""
    from prismfl.transport.local import HOST
    from prismfl.transport.watch import watch_server

    server = watch_server(port, watched)
    say(f"http://{HOST}:{server.server_port}/metrics, /health and /ready; stop with Ctrl-C")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        server.server_close()


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


def own_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given by its keys, on top of this folder's prismfl.toml; data must be in one of them."""
    found = at_hand(None, None, given)
    if found.get("data") is None:
        raise UserError("Which data? Give DATA, or declare your own once in this folder: prismfl new DATA.")
    return found


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
