"""`prismfl site`: one place with its own records, its own cap and its own word on what leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format
from prismfl.errors import UserError
from prismfl.files.atomic import OTHERS, make_folder, write_atomically
from prismfl.site.folder import FILE, close_site

if TYPE_CHECKING:
    from prismfl.site.config import SiteConfig
    from prismfl.site.data import SiteData

SHOWN = 20

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
    folder: Folder,
    name: Annotated[str, typer.Option(help="How the federation knows this site.")],
    data: Annotated[str, typer.Option(help="A data set's name, or a path to this site's records.")],
    method: Annotated[list[str], typer.Option("--method", help="A method that may run here; repeatable.")],
    ca: Annotated[Path | None, typer.Option(help="The server's ca.pem.")] = None,
    cap: Annotated[str, typer.Option(help='Most epsilon that may ever be spent, or "none".')] = "1.0",
    delta: Annotated[float, typer.Option()] = 1e-5,
    unit: Annotated[str, typer.Option(help="What is protected: record, or an id column.")] = "record",
    label: Annotated[str | None, typer.Option(help="Label column of a table.")] = None,
    schema: Annotated[str | None, typer.Option(help="Declared columns of a table.")] = None,
    classes: Annotated[str | None, typer.Option(help="Declared classes, with commas between them.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels a side that own images are brought to.")] = None,
    channels: Annotated[int | None, typer.Option(help="1 (grey) or 3 (colour) for own images.")] = None,
    bounds: Annotated[str | None, typer.Option(help="LOW,HIGH of the values in an npz file.")] = None,
    part: Annotated[str | None, typer.Option(help="For trials: 0/3 is the first of three parts of the data.")] = None,
    approval: Annotated[bool, typer.Option("--approval", help="Every release waits for a person.")] = False,
    honest: Annotated[
        int | None,
        typer.Option(help="Secure sums may run here; so many sites, this one among them, tell the server nothing."),
    ] = None,
) -> None:
    """Make a site: its keys, site.toml with its facts and what it allows, and what is read of its data."""
    from prismfl.data import DATASETS
    from prismfl.files.bounded import read_regular
    from prismfl.methods import METHODS
    from prismfl.runs.config import validate
    from prismfl.site import data as site_data
    from prismfl.site.config import SiteConfig, as_toml, check_site
    from prismfl.site.keys import KEY_LIMIT, make_site_keys

    if (folder / FILE).exists():
        raise UserError(f"'{folder}' holds a site already.")
    known = [METHODS[m] for m in method if m in METHODS]
    given: dict[str, object] = {"name": name, "data": _absolute(data), "delta": delta, "unit": unit}
    given |= {"label": label, "schema_file": schema and _absolute(schema), "approval": approval, "methods": method}
    kinds = {kind.kind for m in known for kind in m.leaves.values()} | (set() if honest is None else {"statistics"})
    given |= {"releases": sorted(kinds), "honest": honest or 1}
    given["cap"] = cap if cap == "none" else _number(cap)
    given |= {"image_size": image_size, "channels": channels, "bounds": bounds and bounds.split(",")}
    given["classes"] = classes and [name.strip() for name in classes.split(",")]
    if part is not None:
        first, _, second = part.partition("/")
        given |= {"part": first, "parts": second}
    config: SiteConfig = validate(SiteConfig, given, "the options")
    check_site(config)
    config, taken = site_data.declare(config)
    found = None if config.data in DATASETS else site_data.read(config)
    if ca is not None and not ca.is_file():
        raise UserError(f"No certificate at '{ca}'.")
    make_folder(folder, closed=True)
    folder.chmod(0o700)
    make_site_keys(folder / "keys")
    if ca is not None:
        write_atomically(folder / "keys" / "ca.pem", read_regular(ca, limit=KEY_LIMIT))
    write_atomically(folder / FILE, as_toml(config).encode())
    if found is not None:
        site_data.keep(folder, config, found)
        if taken:
            terminal.say(f"{', '.join(taken)}: declared from your files; they count as public from now on")
        _tell_left_out(found)
    terminal.say(f"made {folder}; look at {folder / FILE}, then give {folder / 'keys' / 'node.pub'} to the server")


def _absolute(data: str) -> str:
    return str(Path(data).resolve()) if Path(data).exists() else data


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"Expected --cap as a number or \"none\", got '{text}'.") from None


def _tell_left_out(data: SiteData) -> None:
    """For the operator's own terminal: which records were left out, without what stands in them."""
    if data.left_out:
        terminal.warn(f"{data.left_out} records were left out: they are not what the facts in {FILE} say")
    for fault in data.faults[:SHOWN]:
        terminal.say(f"  record {fault.row}: {fault.what}{fault.place and ', ' + fault.place}")
    if data.left_out > SHOWN and data.faults:
        terminal.say(f"  and {data.left_out - SHOWN} more")


def _reread(folder: Path, config: SiteConfig, *, always: bool) -> SiteData | None:
    """Own data read anew where they or site.toml have changed (or `always`), with a line that says so."""
    from prismfl.data import DATASETS

    if config.data in DATASETS:
        return None
    from prismfl.site import data as site_data

    why = site_data.stale(folder, config)
    if why is None and not always:
        return None
    terminal.say(f"reading the data: {why or 'nothing has changed'}")
    data = site_data.prepare(folder, config)
    _tell_left_out(data)
    return data


@app.command()
def check(folder: Folder, fmt: Format = "table") -> None:
    """Read the site's data by the facts in site.toml, and show what is declared, left out and allowed."""
    from prismfl.report.tables import simple_table
    from prismfl.site import data as site_data
    from prismfl.site.config import ledger_of, load_site

    config = load_site(folder)
    # Whoever asks wants to see which records were left out.
    data = _reread(folder, config, always=True) or site_data.load(folder, config)
    spec = data.spec
    found = {
        "site": config.name,
        "data": config.data,
        "kind": spec.kind,
        "shape": list(spec.shape),
        "classes": list(spec.classes),
        "unit": config.unit,
        "relation": config.relation,
        "left out": data.left_out,
        "public": sorted(config.public),
        "ledger": str(ledger_of(folder, config)),
        "cap": config.cap,
        "delta": config.delta,
        "methods": config.methods,
        "releases": config.releases,
        "device": config.device,
        "threads": config.threads,
        **{key: value for key, value in config.model_dump().items() if key.startswith("max_")},
    }
    rows = [{"what": k, "value": ", ".join(map(str, v)) if isinstance(v, list) else v} for k, v in found.items()]
    terminal.emit(found, fmt, lambda: simple_table(f"Site {config.name}", rows))


@app.command()
def join(
    folder: Folder,
    server: Annotated[str, typer.Argument(help="HOST:PORT of the server.", show_default=False)],
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS and no keys: for trials only.")] = False,
    attempts: Annotated[int | None, typer.Option(help="How often an unreachable server is tried.")] = None,
) -> None:
    """Join a server and answer it until stopped."""
    from prismfl.site import joining
    from prismfl.site.config import load_site
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
        terminal.say("warning: --insecure: no encryption, and nobody proves who they are; for trials only")
    _reread(folder, config, always=False)
    if config.noise == "seeded":
        terminal.say('warning: noise = "seeded" in site.toml: for simulation only, it protects nobody')
    try:
        joining.join(folder, server, terminal.say, insecure=insecure, attempts=attempts)
    finally:
        (folder / "site.pid").unlink(missing_ok=True)


@app.command()
def status(folder: Folder, fmt: Format = "table") -> None:
    """Whether the site runs, what it has spent of its cap, what left and what waits."""
    from prismfl.report.ledgers import status_rows
    from prismfl.report.tables import simple_table
    from prismfl.site.config import ledger_of, load_site
    from prismfl.site.egress import Approvals, EgressLog
    from prismfl.transport.flower import children

    config = load_site(folder)
    rows = EgressLog(folder).rows()
    ledger = ledger_of(folder, config)
    spent = status_rows(ledger) if ledger.exists() else []
    waiting = [held.id for held in Approvals(folder).all() if held.decision == "waiting"]
    found = {
        "site": config.name,
        "running": children.pid_of(folder / "site.pid") is not None,
        "methods": config.methods,
        "releases": sum(row["what"] == "release" for row in rows),
        "words": [f"{row['word']} (round {row['round'] + 1})" for row in rows if row["what"] == "word"][-3:],
        "waiting": waiting,
        "ledger": spent,
    }
    lists = {
        key: ", ".join(value) if isinstance(value, list) else value for key, value in found.items() if value != spent
    }
    table = [{"what": key, "value": value} for key, value in lists.items()]
    table += [{"what": f"ledger, {key}", "value": value} for row in spent for key, value in row.items()]
    terminal.emit(found, fmt, lambda: simple_table(f"Site {config.name}", table))


@app.command()
def outbox(folder: Folder, fmt: Format = "table") -> None:
    """Releases that wait for a person, and what to look at before deciding."""
    from prismfl.report.tables import simple_table
    from prismfl.site.egress import Approvals

    rows = [
        {"id": held.id, "release": held.release, "decision": held.decision, "look at": ", ".join(held.files)}
        for held in Approvals(folder).all()
    ]
    terminal.emit(rows, fmt, lambda: simple_table("Outbox", rows))


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
    from prismfl.files.bounded import read_json
    from prismfl.privacy.ledger.book import Ledger
    from prismfl.report.tables import simple_table
    from prismfl.site.config import ledger_of, load_site
    from prismfl.site.egress import config_words

    place, held = ledger_of(folder, load_site(folder, thorough=False)), dict[str, str]()
    if place.exists():
        with Ledger.open(place, create=False) as ledger:
            for status in ledger.status():
                held |= dict.fromkeys(status.closed_runs, "closed") | dict.fromkeys(status.open_runs, "holds budget")
    rows = []
    for note in sorted((folder / "runs").glob("*/job.json")):
        told = read_json(note)
        state = held.get(told["run"], "reserved nothing")
        rows.append({"run": told["run"], "state": state, "what": "\n".join(config_words(told["description"]))})
    terminal.emit(rows, fmt, lambda: simple_table("Runs that were asked for", rows))


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
    from prismfl.report.tables import simple_table
    from prismfl.site.egress import EgressLog

    rows = EgressLog(folder).rows()
    short = [
        {
            "time": row["time"][:19].replace("T", " "),
            "run": row["run"][:8],
            "round": row["round"] + 1,
            "what": row.get("word") or ", ".join(f"{n} ({i['kind']})" for n, i in row["items"].items()),
            "bytes": row.get("bytes", ""),
            "digest": row.get("digest", "")[:8],
            "cost": row.get("cost_words", "").partition(";")[0],
            "again": "resent" if row.get("resend") else "",
        }
        for row in rows
    ]
    terminal.emit(rows, fmt, lambda: simple_table("What left this site", short))
