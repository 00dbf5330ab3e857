"""`prismfl site`: one place with its own records, its own cap and its own word on what leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Channels, Classes, Delta, Format, ImageSize, Label, Schema, Unit
from prismfl.errors import UserError
from prismfl.files.atomic import OTHERS
from prismfl.site.folder import FILE, close_site

app = typer.Typer(
    no_args_is_help=True, help="Be a site of a federation: init, check, join, status, runs, outbox, approve, close."
)


@app.callback()
def private(context: typer.Context) -> None:
    """Whatever a site's process makes, by whichever library, is for the site alone."""
    before = os.umask(OTHERS)
    context.call_on_close(lambda: os.umask(before))


def _closed(folder: Path) -> Path:
    """Every command on a site's folder first closes it to others, and says so if it was open."""
    if (line := close_site(folder)) is not None:
        terminal.say(line)
    return folder


Folder = Annotated[Path, typer.Argument(help="The site's folder.", show_default=False, callback=_closed)]
ReleaseId = Annotated[str, typer.Argument(help="The release, as `prismfl site outbox` lists it.", show_default=False)]


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(help="The site's folder (default: site).", show_default=False, callback=_closed)
    ] = Path("site"),
    name: Annotated[
        str | None, typer.Option(help="How the federation knows this site (default: as its folder is called).")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="A data set's name, or a path to this site's records (default: as ./prismfl.toml says).",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", "-m", help="A method that may run here; repeatable (default: as ./prismfl.toml says)."
        ),
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="The server's ca.pem (default: none; copy it there later).")] = None,
    cap: Annotated[
        str | None,
        typer.Option(
            help='Most epsilon that may ever be spent, or "none" (default: ./prismfl.toml\'s epsilon, or 1.0).'
        ),
    ] = None,
    delta: Delta = None,
    unit: Unit = None,
    label: Label = None,
    schema: Schema = None,
    classes: Classes = None,
    image_size: ImageSize = None,
    channels: Channels = None,
    bounds: Annotated[
        str | None, typer.Option(help="LOW,HIGH of the values in an npz file (default: by the type of its numbers).")
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="For trials: 0/3 is the first of three parts of the data (default: all).")
    ] = None,
    approval: Annotated[bool, typer.Option("--approval", help="Every release waits for a person.")] = False,
    honest: Annotated[
        int | None,
        typer.Option(
            help="Secure sums may run; so many sites, this one among them, tell the server nothing (default: none)."
        ),
    ] = None,
) -> None:
    """Make a site: its keys, site.toml with its facts and what it allows, and what is read of its data."""
    facts = {"data": data, "delta": delta, "unit": unit, "label": label, "schema": schema, "classes": classes}
    if (folder / FILE).exists():
        raise UserError(f"'{folder}' holds a site already; choose another folder.")
    found = terminal.own_data({**facts, "image_size": image_size, "channels": channels})
    from prismfl.site.making import declared_site, make_site

    methods = method or [found[key] for key in ("method",) if key in found]
    if not methods:
        raise UserError("Which methods may run here? Give --method; `prismfl methods` lists them.")
    limit = next((found[key] for key in ("cap", "epsilon") if found.get(key) is not None), "1.0")
    taken = {key: found.get(key) for key in ("delta", "unit", "label", "image_size", "channels")}
    config = declared_site(
        **taken,
        data=found["data"],
        classes=found.get("classes"),
        name=name or folder.resolve().name,
        methods=methods,
        cap=str(limit if cap is None else cap),
        schema=found.get("schema_file"),
        bounds=bounds,
        part=part,
        approval=approval,
        honest=honest,
    )
    make_site(folder, config, ca=ca, say=terminal.say)
    most = "without a cap" if config.cap == "none" else f"for epsilon {config.cap:g} in all"
    terminal.say(f"made {folder}: {', '.join(config.methods)} may run here, {most}")
    terminal.say(f"look at {folder / FILE}, then give {folder / 'keys' / 'node.pub'} to the server")


@app.command()
def check(folder: Folder, fmt: Format = "table") -> None:
    """Read the site's data by the facts in site.toml, and show what is declared, left out and allowed."""
    from prismfl.report.sites import declared_facts, fact_rows
    from prismfl.site import data as site_data
    from prismfl.site.config import load_site
    from prismfl.site.making import reread

    config = load_site(folder)
    # Whoever asks wants to see which records were left out.
    data = reread(folder, config, terminal.say, always=True) or site_data.load(folder, config)
    found = declared_facts(folder, config, data)
    terminal.rows(f"Site {config.name}", fact_rows(found), fmt, value=found)


@app.command()
def join(
    folder: Folder,
    server: Annotated[str, typer.Argument(help="HOST:PORT of the server.", show_default=False)],
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS and no keys: for trials only.")] = False,
    attempts: Annotated[
        int | None, typer.Option(help="How often an unreachable server is tried (default: without end).")
    ] = None,
) -> None:
    """Join a server and answer it until stopped."""
    from prismfl.site import joining
    from prismfl.site.config import load_site
    from prismfl.site.making import reread
    from prismfl.transport.flower import children

    config = load_site(folder, thorough=False)
    children.split_address(server)
    if not insecure and not (folder / "keys" / "ca.pem").is_file():
        raise UserError(
            f"No {folder / 'keys' / 'ca.pem'}: copy the server's ca.pem there, or use --insecure in a trial."
        )
    other = children.pid_of(folder / "site.pid")
    if other is not None:
        raise UserError(f"This site is running already (process {other}).")
    if insecure:
        terminal.warn("--insecure: no encryption, and nobody proves who they are; for trials only")
    reread(folder, config, terminal.say, always=False)
    if config.noise == "seeded":
        terminal.warn('noise = "seeded" in site.toml: for simulation only, it protects nobody')
    try:
        joining.join(folder, server, terminal.say, insecure=insecure, attempts=attempts)
    finally:
        (folder / "site.pid").unlink(missing_ok=True)


@app.command()
def status(folder: Folder, fmt: Format = "table") -> None:
    """Whether the site runs, what it has spent of its cap, what left and what waits."""
    from prismfl.report.sites import fact_rows, status_facts

    found = status_facts(folder)
    terminal.rows(f"Site {found['site']}", fact_rows(found), fmt, value=found)


@app.command()
def outbox(folder: Folder, fmt: Format = "table") -> None:
    """Releases that wait for a person, and what to look at before deciding."""
    from prismfl.report.sites import outbox_rows

    terminal.rows("Outbox", outbox_rows(folder), fmt)


@app.command()
def approve(folder: Folder, release: ReleaseId) -> None:
    """Let a release go."""
    from prismfl.site.egress import Approvals

    held = Approvals(folder).decide(release, "approved")
    terminal.say(f"{held.id} may leave")


@app.command()
def deny(folder: Folder, release: ReleaseId) -> None:
    """Keep a release here for good. It stays charged: its noise has been drawn."""
    from prismfl.site.egress import Approvals

    held = Approvals(folder).decide(release, "denied")
    terminal.say(f"{held.id} will never leave; it stays charged")


@app.command()
def runs(folder: Folder, fmt: Format = "table") -> None:
    """Every run that a server has asked for here: what it is, in words, and whether it still holds budget."""
    from prismfl.report.sites import run_rows

    terminal.rows("Runs that were asked for", run_rows(folder), fmt)


@app.command()
def close(
    folder: Folder, run: Annotated[str, typer.Argument(help="The run, as `prismfl site egress` names it.")]
) -> None:
    """Close the account of a run that ended without telling this site; what it released stays charged."""
    from prismfl.cli.ledger import close as close_run
    from prismfl.site.config import ledger_of, load_site

    close_run(run, ledger_of(folder, load_site(folder, thorough=False)))


@app.command()
def egress(folder: Folder, fmt: Format = "table") -> None:
    """Everything that left this site."""
    from prismfl.report.sites import egress_rows
    from prismfl.site.egress import EgressLog

    rows = EgressLog(folder).rows()
    terminal.rows("What left this site", egress_rows(rows), fmt, value=rows)
