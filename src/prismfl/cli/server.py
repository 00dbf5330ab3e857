"""`prismfl server`: the middle of a federation."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from prismfl.cli import terminal
from prismfl.cli.terminal import Format, Sets
from prismfl.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Run the server of a federation: init, enroll, start, status, stop.")
Folder = Annotated[Path, typer.Argument(help="The server's folder.", show_default=False)]


@app.command()
def init(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option()] = 9092,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Host name or address that sites will use; repeatable.")
    ] = None,
    quorum: Annotated[int, typer.Option(help="Releases that a round needs.")] = 2,
    deadline: Annotated[float, typer.Option(help="Seconds that a round may take.")] = 600.0,
    join: Annotated[float, typer.Option(help="Seconds to wait for sites before the first round.")] = 600.0,
    evaluate: Annotated[bool, typer.Option(help="Measure accuracy on a named data set's test part.")] = False,
) -> None:
    """Make a server: certificates, and server.toml with what it does by default."""
    from prismfl.runs.config import validate
    from prismfl.server.config import ServerConfig, init_server

    given = {"host": host, "port": port, "quorum": quorum, "deadline": deadline, "join": join, "evaluate": evaluate}
    names = list(dict.fromkeys([*(name or []), *([host] if host != "0.0.0.0" else []), "127.0.0.1", "localhost"]))
    init_server(folder, validate(ServerConfig, given, "the options"), names)
    terminal.say(f"made {folder}; give {folder / 'keys' / 'ca.pem'} to the sites and enroll their keys/node.pub")


@app.command()
def enroll(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The site's name.", show_default=False)],
    key: Annotated[Path, typer.Argument(help="The site's keys/node.pub.", show_default=False)],
) -> None:
    """Admit a site: from now on its key proves its name."""
    from prismfl.server.config import enroll as admit

    admit(folder, name, key)
    terminal.say(f"site {name} is enrolled")


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
    fmt: Format = "table",
) -> None:
    """Run a config with the enrolled sites, to its end."""
    from prismfl.report.tables import result_table
    from prismfl.server import starting
    from prismfl.server.config import enrolled, load_server
    from prismfl.transport.flower import children

    settings = load_server(folder)
    if (config is None) != resume:
        raise UserError("Give a run config to start, or --resume to go on with the last run.")
    other = children.pid_of(folder / "server.pid")
    if other is not None:
        raise UserError(
            f"This server is running already (process {other}); stop it with: prismfl server stop {folder}."
        )
    if insecure:
        terminal.say("warning: --insecure: no encryption, and nobody proves who they are; for trials only")
    names = list(sites or []) if insecure else list(enrolled(folder))
    directory = _last_run(folder) if resume else _new_run(folder, config, names, sets, settings)
    (folder / "server.pid").write_text(str(os.getpid()))
    link = starting.SuperLink(folder, settings, insecure=insecure)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        link.start()
        link.submit(directory, names)
        terminal.say(f"listening on {link.local_address}; waiting for {', '.join(names)}")
        starting.follow(directory, link, terminal.say)
    finally:
        link.stop()
        signal.signal(signal.SIGTERM, previous)
        (folder / "server.pid").unlink(missing_ok=True)
    result = directory.read_json("result.json")
    terminal.emit(result, fmt, lambda: result_table(result))


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _new_run(folder: Path, config: Path | None, names: list[str], sets: list[str] | None, settings: Any) -> Any:
    from prismfl.server.serving import prepare

    if not names:
        raise UserError(f"No site is enrolled; enroll one with: prismfl server enroll {folder} NAME KEY.")
    when = datetime.now(UTC)
    path = folder / "runs" / f"{when:%Y%m%dT%H%M%S}"
    while path.exists():
        path = path.with_name(path.name + "x")
    asked = terminal.config(config, sets)
    return prepare(path, asked, names, rules=settings.rules(), evaluate=settings.evaluate)


def _last_run(folder: Path) -> Any:
    from prismfl.runs.directory import RunDirectory
    from prismfl.transport.flower.children import kill_stale

    paths = sorted(path.parent for path in (folder / "runs").glob("*/federation.json"))
    unfinished = [path for path in paths if RunDirectory.open(path).status != "finished"]
    if not unfinished:
        raise UserError(f"'{folder}' has no run that did not finish.")
    directory = RunDirectory.open(unfinished[-1])
    if (directory.path / "process.json").exists():
        # A server that was killed may have left the run's own process behind; two must not write to one run.
        kill_stale(int(directory.read_json("process.json")["pid"]), "serverapp")
    for stale in ("process.json", "failure.json"):
        (directory.path / stale).unlink(missing_ok=True)
    directory.set_status("running")
    terminal.say(f"going on with {directory.path}")
    return directory


@app.command()
def status(folder: Folder, fmt: Format = "table") -> None:
    """Whether the server runs, who is enrolled, and every run with its round and its faults."""
    from prismfl.report.tables import simple_table
    from prismfl.runs.directory import RunDirectory
    from prismfl.server.config import enrolled, load_server
    from prismfl.transport.faults import faults
    from prismfl.transport.flower import children

    load_server(folder)
    runs = []
    for path in sorted(path.parent for path in (folder / "runs").glob("*/federation.json")):
        directory = RunDirectory.open(path)
        state = directory.load_state()
        named = [f"{f.site} {f.code} (round {f.round + 1})" for f in faults(directory)]
        runs.append(
            {
                "run": path.name,
                "status": directory.status,
                "rounds done": state.round if state else 0,
                "dropped": "; ".join(named[-5:]),
            }
        )
    pid = children.pid_of(folder / "server.pid")
    found = {"running": pid is not None, "pid": pid, "sites": list(enrolled(folder)), "runs": runs}
    words = "running" if pid is not None else "stopped"
    title = f"Server {words}; sites: {', '.join(found['sites']) or 'none'}"  # type: ignore[arg-type]
    terminal.emit(found, fmt, lambda: simple_table(title, runs))


@app.command()
def stop(folder: Folder) -> None:
    """Stop a running server; its run can be resumed."""
    from prismfl.transport.flower import children

    pid = children.pid_of(folder / "server.pid")
    if pid is None:
        raise UserError(f"The server in '{folder}' is not running.")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 30
    while children.is_running(pid) and time.monotonic() < end:
        time.sleep(0.2)
    terminal.say("stopped; go on with: prismfl server start --resume")
