"""`prismfl server`: the middle of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismfl.cli import terminal
from prismfl.cli.options import Format, Log, Sets
from prismfl.errors import UserError

INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    help="Run the server of a federation: init, enroll, revoke, renew, start, status, watch, stop.",
)
Folder = Annotated[Path, typer.Argument(help="The server's folder.", show_default=False)]


@app.command()
def init(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9092,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Host name or address that sites will use; repeatable.")
    ] = None,
    quorum: Annotated[int, typer.Option(help="Releases that a round needs.")] = 2,
    deadline: Annotated[float, typer.Option(help="Seconds that a round may take.")] = 600.0,
    close_after: Annotated[
        float | None,
        typer.Option(help="Seconds that a round stays open once the quorum has answered; else until the deadline."),
    ] = None,
    join: Annotated[float, typer.Option(help="Seconds to wait for sites before the first round.")] = 600.0,
    evaluate: Annotated[bool, typer.Option(help="Measure accuracy on a named data set's test part.")] = False,
) -> None:
    """Make a server: certificates, and server.toml with what it does by default."""
    from prismfl.runs.config import validate
    from prismfl.server.config import ServerConfig, init_server

    given = {"host": host, "port": port, "quorum": quorum, "deadline": deadline, "join": join, "evaluate": evaluate}
    given["close_after"] = close_after
    names = list(dict.fromkeys([*(name or []), *([host] if host != "0.0.0.0" else []), "127.0.0.1", "localhost"]))
    init_server(folder, validate(ServerConfig, given, "the options"), names)
    terminal.say(f"made {folder}; give {folder / 'keys' / 'ca.pem'} to the sites and enroll their keys/node.pub")


@app.command()
def enroll(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The site's name.", show_default=False)],
    key: Annotated[Path, typer.Argument(help="The site's keys/node.pub.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="A new key of a site that is enrolled.")] = False,
) -> None:
    """Admit a site: from now on its key proves its name."""
    from prismfl.server import config

    (config.replace if replace else config.enroll)(folder, name, key)
    terminal.say(f"site {name} is enrolled" + (", its key before is revoked" if replace else ""))


@app.command()
def revoke(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The site's name.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Kept beside the key.")],
) -> None:
    """Un-enroll a site at once, also in a run that is under way; its key is never admitted again."""
    from prismfl.server import config

    config.revoke(folder, name, reason)
    terminal.say(f"site {name} is revoked: nothing of it counts any more, and nothing is sent to it")


@app.command()
def renew(
    folder: Folder,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Names that sites use; default: those of before.")
    ] = None,
) -> None:
    """A new certificate under the same authority. Sites do nothing; it serves from the next start on."""
    from prismfl.server.config import load_server
    from prismfl.site.certificates import renew_server

    load_server(folder)
    state = renew_server(folder / "keys", name or [])
    terminal.say(
        f"renewed for {', '.join(state.names)}, good until {state.until:%Y-%m-%d}; it serves from the next start"
    )


@app.command()
def start(
    folder: Folder,
    config: Annotated[Path | None, typer.Argument(help="The run: a TOML or YAML file.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last run that did not finish.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS and no keys: for trials only.")] = False,
    sites: Annotated[
        list[str] | None, typer.Option("--site", help="With --insecure: the sites' names; repeatable.")
    ] = None,
    sets: Sets = None,
    log: Log = "text",
    fmt: Format = "table",
) -> None:
    """Run a config with the enrolled sites, to its end."""
    from prismfl.report.tables import result_table
    from prismfl.server import running

    if (config is None) != resume:
        raise UserError("Give a run config to start, or --resume to go on with the last run.")
    asked = None if config is None else terminal.config(config, sets)
    say = terminal.speaker(log)
    try:
        result = running.start(folder, asked, sites=sites or [], insecure=insecure, say=say)
    except KeyboardInterrupt:
        say(f"stopped; what was done is kept, go on with: prismfl server start {folder} --resume")
        raise SystemExit(INTERRUPTED) from None
    terminal.emit(result, fmt, lambda: result_table(result))


@app.command()
def status(
    folder: Folder,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks.")] = 5.0,
    fmt: Format = "table",
) -> None:
    """Whether the server runs, who is enrolled and was last there, and every run with its round and its faults."""
    import time

    from prismfl.server import running

    while True:
        found = running.status(folder)
        words = "running" if found["running"] else "stopped"
        sites = ", ".join(f"{name} ({terminal.ago(age)})" for name, age in found["contact"].items())
        title = f"Server {words}; sites: {sites or 'none'}"
        terminal.rows(title, found["runs"], fmt, value=found, caption="\n".join(found["certificates"]) or None)
        if not watch:
            return
        time.sleep(every)


@app.command()
def watch(folder: Folder, port: Annotated[int, typer.Option(help="Port on loopback.")] = 9465) -> None:
    """Answer a monitor on this machine: /metrics (Prometheus), /health, /ready."""
    from prismfl.server.config import load_server
    from prismfl.server.watching import watched

    load_server(folder)
    terminal.serve(port, watched(folder))


@app.command()
def stop(folder: Folder) -> None:
    """Stop a running server; its run can be resumed."""
    from prismfl.server import running

    running.stop(folder)
    terminal.say("stopped; go on with: prismfl server start --resume")
