"""`prismfl site`: one place with its own records, its own cap and its own word on what leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Channels, Classes, Delta, Features, Format, ImageSize, Label, Log, Schema, Split, Unit
from prismfl.errors import UserError
from prismfl.files.atomic import OTHERS
from prismfl.site.folder import FILE, close_site

app = typer.Typer(
    no_args_is_help=True,
    help="Be a site of a federation: init, check, join, status, watch, runs, outbox, approve, close, rotate.",
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
By = Annotated[str, typer.Option(help="Your name; it is kept with the decision.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]
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
    features: Features = None,
    bounds: Annotated[
        str | None, typer.Option(help="LOW,HIGH of the values in an npz file (default: by the type of its numbers).")
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="For trials: 0/3 is the first of three parts of the data (default: all).")
    ] = None,
    split: Split = None,
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
    found = terminal.own_data({**facts, "image_size": image_size, "channels": channels, "features": features})
    from prismfl.site.making import declared_site, make_site

    methods = method or [found[key] for key in ("method",) if key in found]
    if not methods:
        raise UserError("Which methods may run here? Give --method; `prismfl methods` lists them.")
    limit = next((found[key] for key in ("cap", "epsilon") if found.get(key) is not None), "1.0")
    taken = {key: found.get(key) for key in ("delta", "unit", "label", "image_size", "channels", "features")}
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
        split=split,
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
    from prismfl.site.config import cap_by_hand, load_site
    from prismfl.site.making import reread

    config = load_site(folder)
    # Whoever asks wants to see which records were left out.
    data = reread(folder, config, terminal.say, always=True) or site_data.load(folder, config)
    found = declared_facts(folder, config, data)
    terminal.rows(f"Site {config.name}", fact_rows(found), fmt, value=found)
    if (line := cap_by_hand(folder, config)) is not None:
        terminal.say(f"warning: {line}")


@app.command()
def join(
    folder: Folder,
    server: Annotated[
        str, typer.Argument(help="HOST:PORT of the server, or the name that `site server` gave it.", show_default=False)
    ],
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS and no keys: for trials only.")] = False,
    attempts: Annotated[
        int | None, typer.Option(help="How often an unreachable server is tried (default: without end).")
    ] = None,
    log: Log = "text",
) -> None:
    """Join a server and answer it until stopped."""
    from prismfl.data import DATASETS
    from prismfl.site import joining
    from prismfl.site.config import cap_by_hand, load_site
    from prismfl.site.servers import load_server, place_of
    from prismfl.transport.flower import children

    say = terminal.speaker(log)
    config = load_site(folder, thorough=False)
    name = "" if ":" in server else server
    address = load_server(folder, name).address if name else server
    children.split_address(address)
    trust, pid = joining.trust_of(folder, name), place_of(folder, name) / "site.pid"
    if not insecure and not trust.is_file():
        raise UserError(f"No {trust}: copy the server's ca.pem there, or use --insecure in a trial.")
    other = children.pid_of(pid)
    if other is not None:
        raise UserError(f"This site is running already (process {other}).")
    if insecure:
        say("warning: --insecure: no encryption, and nobody proves who they are; for trials only")
    if config.data not in DATASETS:
        joining.reread_apart(folder, say)
    if (line := cap_by_hand(folder, config)) is not None:
        say(f"warning: {line}")
    if config.noise == "seeded":
        say('warning: noise = "seeded" in site.toml: for simulation only, it protects nobody')
    try:
        joining.join(folder, address, say, insecure=insecure, attempts=attempts, server=name)
    finally:
        pid.unlink(missing_ok=True)


@app.command()
def server(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="A name of your own for the server.", show_default=False)],
    address: Annotated[str, typer.Argument(help="HOST:PORT.", show_default=False)],
    ca: Annotated[Path, typer.Option(help="That server's ca.pem.")],
    method: Annotated[
        list[str] | None, typer.Option("--method", help="A method that it may ask for; default: as in site.toml.")
    ] = None,
    release: Annotated[
        list[str] | None, typer.Option("--release", help="A kind that may leave to it; default: as in site.toml.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="Digest of a run config that it may ask for; default: any.")
    ] = None,
) -> None:
    """Make a further server known: its own trust and allow-lists, the same ledger and the same cap."""
    from prismfl.site.config import load_site
    from prismfl.site.servers import AllowedServer, add_server

    load_site(folder, thorough=False)
    add_server(folder, name, AllowedServer(address=address, methods=method, releases=release, configs=config), ca)
    terminal.say(f"server {name} is known; join it with: prismfl site join {folder} {name}")


@app.command()
def status(folder: Folder, fmt: Format = "table") -> None:
    """Whether the site runs and when it last answered, what it has spent of its cap, what left and what waits."""
    from prismfl.report.sites import fact_rows, status_facts

    found = status_facts(folder)
    shown = {**found, "last answer": terminal.ago(found["last answer"])}
    terminal.rows(f"Site {found['site']}", fact_rows(shown), fmt, value=found)


@app.command()
def watch(folder: Folder, port: Annotated[int, typer.Option(help="Port on loopback.")] = 9464) -> None:
    """Answer a monitor on this machine: /metrics (Prometheus), /health, /ready. Nothing in it follows a record."""
    from prismfl.site.config import load_site
    from prismfl.site.watching import watched

    load_site(folder, thorough=False)
    terminal.serve(port, watched(folder))


@app.command()
def rotate(
    folder: Folder,
    switch: Annotated[bool, typer.Option("--switch", help="The server has the new key: use it from now on.")] = False,
) -> None:
    """A new node key: made beside the old one, given to the server, then switched to."""
    from prismfl.site.config import load_site
    from prismfl.site.keys import next_node_key, switch_node_key
    from prismfl.transport.flower import children

    load_site(folder, thorough=False)
    if not switch:
        public = next_node_key(folder / "keys")
        terminal.say(
            f"made {public}; the server's operator runs: prismfl server enroll SERVER NAME {public.name} --replace"
        )
        terminal.say(f"then, here: prismfl site rotate {folder} --switch")
        return
    if children.pid_of(folder / "site.pid") is not None:
        raise UserError("This site is running with its old key: stop it first, then switch and join again.")
    switch_node_key(folder / "keys")
    terminal.say("the new key is in use from the next join on")


@app.command()
def outbox(folder: Folder, fmt: Format = "table") -> None:
    """Releases that wait for a person, and what to look at before deciding."""
    from prismfl.report.sites import outbox_rows

    terminal.rows("Outbox", outbox_rows(folder), fmt)


@app.command()
def look(folder: Folder, release: ReleaseId) -> None:
    """What a release is before you decide: what is asked, its cost and what is left, what would leave."""
    from prismfl.report.sites import preview

    terminal.out(preview(folder, release))


@app.command()
def desk(folder: Folder, port: Annotated[int, typer.Option(help="Port on loopback; 0: any.")] = 0) -> None:
    """The release desk as a page on this machine, for whoever has the address that is printed."""
    from prismfl.report.desk import serve
    from prismfl.site.config import load_site

    load_site(folder, thorough=False)
    serve(folder, port=port, say=terminal.say)


@app.command()
def approve(folder: Folder, release: ReleaseId, by: By, reason: Reason) -> None:
    """Let a release go."""
    from prismfl.site.approvals import Approvals

    held = Approvals(folder).decide(release, "approved", by=by, reason=reason)
    missing = held.needed - len(held.words)
    terminal.say(f"{held.id} may leave" if missing <= 0 else f"{held.id} waits for {missing} more to approve it")


@app.command()
def deny(folder: Folder, release: ReleaseId, by: By, reason: Reason) -> None:
    """Keep a release here for good. It stays charged: its noise has been drawn."""
    from prismfl.site.approvals import Approvals

    held = Approvals(folder).decide(release, "denied", by=by, reason=reason)
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

    log = EgressLog(folder)
    log.verify()
    rows = log.rows()
    terminal.rows("What left this site", egress_rows(rows), fmt, value=rows)
