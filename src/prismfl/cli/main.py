"""The `prismfl` command. Heavy imports happen inside the commands, so that help is instant."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from prismfl.cli import (
    attack,
    audit,
    bundle,
    compare,
    dashboard,
    data,
    demo,
    doctor,
    export,
    federation,
    figures,
    help,
    leaves,
    ledger,
    methods,
    new,
    partition,
    plan,
    predict,
    report,
    resume,
    run,
    schema,
    server,
    site,
    sweep,
    synth,
    terminal,
)
from prismfl.errors import PrismError
from prismfl.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Learn together by exchanging differentially private synthetic data instead of gradients.",
)


INTERRUPTED = 130


def main() -> None:
    """Entry point: mistakes become one clear line and an exit code, never a traceback."""
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # typer makes this of Ctrl-C
            raise KeyboardInterrupt
        if isinstance(code, int) and code:  # a command that has found something bad, and has said so
            raise SystemExit(code)
    except PrismError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail(
            "Interrupted. What was done is kept; go on with: prismfl resume RUN (a sweep: the same command).",
            INTERRUPTED,
        )
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            _fail(f"Cannot open or write '{error.filename}': {error.strerror}; choose another place with --out.", 2)
        if error.errno != errno.ENOSPC:
            raise
        _fail(
            "The disk is full; nothing was sent, the last checkpoint is whole. Free space, then: prismfl resume RUN.", 2
        )
    except typer.Abort:
        _fail("Stopped.", INTERRUPTED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if not error.format_message():  # no arguments: help was shown
            raise SystemExit(2) from None
        _fail(error.format_message(), 2)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"prismfl: {message}\n")
    raise SystemExit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        terminal.out(__version__)
        raise typer.Exit


for command in (
    new.new,
    run.run,
    resume.resume,
    sweep.sweep,
    plan.plan,
    predict.predict,
    export.export,
    methods.methods,
    leaves.leaves,
    data.data,
    partition.partition,
    compare.compare,
    demo.demo,
    report.report,
    figures.figures,
    audit.audit,
    dashboard.dashboard,
    attack.attack,
    synth.synth,
    schema.schema,
    doctor.doctor,
    help.help,
):
    app.command()(command)
for group in (ledger, federation, server, site, bundle):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
