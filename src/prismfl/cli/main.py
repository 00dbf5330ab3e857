"""The `prismfl` command. Heavy imports happen inside the commands, so that help is instant."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer

from prismfl import __version__
from prismfl.cli import (
    attack,
    audit,
    bundle,
    dashboard,
    demo,
    figures,
    ledger,
    report,
    schema,
    server,
    site,
    synth,
    terminal,
)
from prismfl.cli.terminal import ConfigFile, Format, Sets
from prismfl.errors import PrismError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Learn together by exchanging differentially private synthetic data instead of gradients.",
)


def main() -> None:
    """Entry point: mistakes become one clear line and an exit code, never a traceback."""
    try:
        app(standalone_mode=False)
    except PrismError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("Interrupted. What was done is kept; go on with: prismfl resume RUN.", 130)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _fail(
            "The disk is full; nothing was sent, the last checkpoint is whole. Free space, then: prismfl resume RUN.", 2
        )
    except typer.Abort:
        _fail("Stopped.", 130)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _fail(error.format_message(), 2)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"prismfl: {message}\n")
    raise SystemExit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        terminal.out(__version__)
        raise typer.Exit


@app.command()
def run(
    config: ConfigFile = None,
    method: Annotated[str | None, typer.Option("--method", "-m")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="Total budget of each site.")] = None,
    delta: Annotated[float | None, typer.Option()] = None,
    sites: Annotated[int | None, typer.Option("--sites", "-n")] = None,
    split: Annotated[str | None, typer.Option()] = None,
    model: Annotated[str | None, typer.Option()] = None,
    public: Annotated[str | None, typer.Option(help="Public images: data set, folder or 'procedural'.")] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    device: Annotated[str | None, typer.Option()] = None,
    data_dir: Annotated[str | None, typer.Option(help="Where data files lie (default: PRISMFL_DATA).")] = None,
    ledger: Annotated[str | None, typer.Option(help="Folder of ledgers that last beyond this run.")] = None,
    cap: Annotated[float | None, typer.Option(help="Each site's cap on epsilon over all runs.")] = None,
    out: Annotated[str | None, typer.Option("--out", "-o")] = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """Run a method on a data set and keep everything in a run directory."""
    from prismfl.report.tables import result_table
    from prismfl.runs import simulate

    resolved = terminal.config(
        config,
        sets,
        method=method,
        data=data,
        epsilon=epsilon,
        delta=delta,
        sites=sites,
        split=split,
        model=model,
        public=public,
        seed=seed,
        device=device,
        data_dir=data_dir,
        ledger=ledger,
        cap=cap,
        out=out,
    )
    with terminal.progress() as progress:
        result = simulate.run(resolved, progress=progress, warn=terminal.warn)
    terminal.emit(result.as_dict(), fmt, lambda: result_table(result.as_dict()))


@app.command()
def resume(path: Annotated[Path, typer.Argument(help="A run directory.")], fmt: Format = "table") -> None:
    """Take a run that was cut off to its end; nothing is charged twice."""
    from prismfl.report.tables import result_table
    from prismfl.runs import simulate

    with terminal.progress() as progress:
        result = simulate.resume(path, progress=progress, warn=terminal.warn)
    terminal.emit(result.as_dict(), fmt, lambda: result_table(result.as_dict()))


@app.command()
def plan(
    config: ConfigFile = None,
    method: Annotated[str | None, typer.Option("--method", "-m")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e")] = None,
    delta: Annotated[float | None, typer.Option()] = None,
    sites: Annotated[int | None, typer.Option("--sites", "-n")] = None,
    model: Annotated[str | None, typer.Option()] = None,
    sets: Sets = None,
    fmt: Format = "table",
) -> None:
    """What a run will cost and send, from public numbers only: no record is read."""
    from prismfl.report.tables import plan_table
    from prismfl.runs import planning

    resolved = terminal.config(
        config, sets, method=method, data=data, epsilon=epsilon, delta=delta, sites=sites, model=model
    )
    found = planning.plan(resolved)
    terminal.emit(found.__dict__, fmt, lambda: plan_table(found.__dict__))
    for line in found.warnings:
        terminal.warn(line)


@app.command()
def methods(fmt: Format = "table") -> None:
    """Every method, what protects it and where it comes from."""
    from prismfl.methods import METHODS
    from prismfl.report.tables import simple_table

    rows = [
        {"method": m.name, "guarantee": m.guarantee or "none", "what it does": m.summary, "paper": m.paper}
        for m in METHODS.values()
    ]
    terminal.emit(rows, fmt, lambda: simple_table("Methods", rows))


@app.command()
def leaves(fmt: Format = "table") -> None:
    """The manifest of every method: what leaves a site, at what cost, for which unit."""
    from prismfl.report.manifest import manifest, manifest_page
    from prismfl.report.tables import simple_table

    if fmt == "markdown":
        terminal.out(manifest_page().rstrip("\n"))
        return
    rows = manifest()
    terminal.emit(rows, fmt, lambda: simple_table("What leaves a site", rows))


@app.command()
def data(
    data_dir: Annotated[str | None, typer.Option(help="Where data files lie (default: PRISMFL_DATA).")] = None,
    fmt: Format = "table",
) -> None:
    """Data sets by name, and which of them are at hand."""
    from prismfl.data import available, public_names
    from prismfl.report.tables import simple_table

    found = available(data_dir)
    rows = [
        {
            "data": spec.name,
            "kind": spec.kind,
            "shape": "x".join(map(str, spec.shape)),
            "classes": len(spec.classes),
            "records": spec.train_size,
            "at hand": "yes" if there else "no",
            "where": where,
        }
        for spec, there, where in found
    ]
    more = [name for name in public_names() if name not in {spec.name for spec, _, _ in found}]
    note = f"Public images (--public): a folder, any image set above, or {', '.join(more)}."
    terminal.emit(rows, fmt, lambda: simple_table("Data sets", rows, caption=note))


@app.command("partition")
def partition_command(
    name: Annotated[str, typer.Argument(metavar="DATA", help="A data set's name.")],
    sites: Annotated[int, typer.Option("--sites", "-n")] = 5,
    split: Annotated[str, typer.Option()] = "iid",
    seed: Annotated[int, typer.Option()] = 0,
    data_dir: Annotated[str | None, typer.Option()] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture of the split.")] = None,
    fmt: Format = "table",
) -> None:
    """How a split deals the records of each class to the sites."""
    from prismfl.data import load, partition, summary
    from prismfl.data import plot as plot_split
    from prismfl.report.tables import simple_table

    dataset = load(name, data_dir=data_dir)
    labels, classes = dataset.y_train.numpy(), dataset.spec.classes
    parts = partition(labels, sites, split=split, seed=seed, classes=len(classes))
    counts = summary(parts, labels, classes)
    rows = [
        {"site": f"site-{i}", **{c: int(n) for c, n in zip(classes, row)}, "all": int(row.sum())}
        for i, row in enumerate(counts)
    ]
    if plot is not None:
        plot_split(parts, labels, classes, plot)
        terminal.say(f"wrote {plot}")
    terminal.emit(rows, fmt, lambda: simple_table(f"{name}, {split}", rows))


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    on_site: Annotated[bool, typer.Option("--on-site", help="With accuracy on own records; never to be sent.")] = False,
    fmt: Format = "table",
) -> None:
    """One table over runs: what leaves, epsilon, accuracy over seeds, bytes, seconds."""
    from prismfl.report.comparison import compare_runs, comparison_table

    rows = compare_runs(runs, on_site=on_site)
    terminal.emit(rows, fmt, lambda: comparison_table(rows))


app.command()(demo.demo)
app.command()(report.report)
app.command()(figures.figures)
app.command()(audit.audit)
app.command()(dashboard.dashboard)
app.add_typer(ledger.app, name="ledger")
app.add_typer(server.app, name="server")
app.add_typer(site.app, name="site")
app.command()(attack.attack)
app.command()(synth.synth)
app.command()(schema.schema)
app.add_typer(bundle.app, name="bundle")
