"""Flower's processes as prismfl starts them: quiet, guarded, and warm. Importing this imports neither flwr nor torch.

`superlink` is Flower's SuperLink whose control and runtime interfaces answer this machine only (Flower serves them
on the port of the sites, without asking who calls). `clientapp` is Flower's ClientApp process that refuses any app
other than prismfl's own: a server cannot send code to a site. On a site it is forked from a process that has everything
imported (`fork_apps`): Flower starts one for every message, and importing costs more than most messages. That process
begins with the first message.
"""

from __future__ import annotations

import ctypes
import io
import ipaddress
import json
import os
import signal
import sys
import threading
import time
import tomllib
import traceback
import zipfile
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

from prismfl.errors import UserError, quiet_crashes
from prismfl.files.atomic import make_folder, write_atomically

COMPONENTS = {"serverapp": "prismfl.server.app:server_app", "clientapp": "prismfl.site.app:client_app"}
APP_FILES = {"pyproject.toml", ".info/CONTENT"}
REQUEST_LIMIT = 64 * 1024 * 1024
REPEATED = ("/v1/fleet/", "/v1/runtime/")  # Flower's control commands do not repeat
BUSY_MILLISECONDS = 120_000  # how long Flower's database waits for its lock; many sites may be writing large replies

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class LocalOnly:
    """ASGI middleware: from elsewhere only the sites' interface can be reached, with bodies of bounded size."""

    def __init__(self, app: App, limit: int = REQUEST_LIMIT) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app, or refuse it: 403 by where it comes from, 413 by the size of its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if not _from_here(scope) and not str(scope["path"]).startswith("/v1/fleet/"):
            await _refuse(send, 403)
        elif not size.isdigit() or int(size) > self.limit or _is_chunked(scope):
            await _refuse(send, 413)
        else:
            await self.app(scope, receive, send)


class TryAgain:
    """ASGI middleware: what fails inside Flower is "busy" (503) to sites and runs, never "broken" (500).

    A database that is locked for too long is a 500. Flower's SuperNode repeats after a 503; after a 500 its heartbeat
    ends without a word, and an honest site stays absent until somebody restarts it.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back with the status that says the truth: try again."""

        async def answer(message: MutableMapping[str, Any]) -> None:
            await send({**message, "status": 503} if message.get("status") == 500 else message)

        repeats = scope["type"] == "http" and str(scope["path"]).startswith(REPEATED)
        await self.app(scope, receive, answer if repeats else send)


def _is_chunked(scope: Scope) -> bool:
    return any(k == b"transfer-encoding" for k, _ in scope["headers"])


def _from_here(scope: Scope) -> bool:
    try:
        return ipaddress.ip_address((scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False


async def _refuse(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def superlink() -> None:
    """The process `flower-superlink`, guarded."""
    from flwr.supercore import sql_mixin
    from flwr.superlink import extensions, main
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    _expect(vars(main).get("extensions") is extensions and hasattr(extensions, "get_middleware"))
    extensions.get_middleware = lambda: (Middleware(LocalOnly), Middleware(TryAgain))
    pragmas = dict(vars(sql_mixin).get("SQLITE_PRAGMAS", ()))
    _expect("busy_timeout" in pragmas)
    vars(sql_mixin)["SQLITE_PRAGMAS"] = tuple({**pragmas, "busy_timeout": str(BUSY_MILLISECONDS)}.items())
    flower_superlink()


def check_app(content: bytes) -> None:
    """Refuse an app bundle that is not prismfl's own: two files, no code, our components."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as bundle:
            names = set(bundle.namelist())
            small = all(info.file_size < 100_000 for info in bundle.infolist())
            text = bundle.read("pyproject.toml").decode() if names <= APP_FILES and small else ""
        components = tomllib.loads(text)["tool"]["flwr"]["app"]["components"]
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise UserError("The server sent an app that is not prismfl's; this site runs no other code.") from error
    if components != COMPONENTS:
        raise UserError("The server sent an app that is not prismfl's; this site runs no other code.")


def clientapp() -> None:
    """The process `flwr-clientapp` on a site, guarded."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp

    os.umask(0o077)
    quiet_crashes()
    _expect("install_from_fab" in vars(run_clientapp))
    install = vars(run_clientapp)["install_from_fab"]

    def checked(fab_file: bytes, *args: Any, **kwargs: Any) -> Any:
        check_app(fab_file)
        return install(fab_file, *args, **kwargs)

    vars(run_clientapp)["install_from_fab"] = checked
    flwr_clientapp()


def _expect(condition: bool) -> None:
    if not condition:
        raise UserError("This Flower is not the 1.41 that prismfl guards; install the version it was made for.")


def quiet_environment(home: str) -> dict[str, str]:
    """The environment of Flower's processes: no telemetry, no update check, no installation at run time."""
    return {
        **os.environ,
        "FLWR_HOME": home,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "OPENBLAS_NUM_THREADS": "1",
    }


def control() -> None:
    """Flower's command line: each of the commands in a JSON list. A key that is known already is fine."""
    import click
    from flwr.cli.app import app

    for command in json.loads(sys.argv[1]):
        try:
            app(command, standalone_mode=False)
        except click.ClickException as error:
            if command[0] != "supernode" or "already" not in error.format_message():
                raise SystemExit(error.format_message()) from None


# A warm ClientApp

FIFO = "apps.fifo"
FORKED_APP = """#!{python}
import json, os, sys

try:
    handle = os.open({fifo!r}, os.O_WRONLY | os.O_NONBLOCK)
    os.write(handle, json.dumps(sys.argv).encode() + b"\\n")
except OSError:
    from prismfl.transport.flower.guard import {function}

    {function}()
"""
OWN_APP = """#!{python}
from prismfl.transport.flower.guard import {function}

{function}()
"""
REFUSING_APP = """#!{python}
raise SystemExit("prismfl: this site runs prismfl's ClientApp and nothing else.")
"""
OTHER_APPS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


def write_commands(folder: Path) -> None:
    """The commands that a SuperNode starts, replaced by guarded ones; `folder` goes first on its path."""
    make_folder(folder)
    (folder / FIFO).unlink(missing_ok=True)
    os.mkfifo(folder / FIFO, 0o600)
    fill = {"python": sys.executable, "fifo": str(folder / FIFO)}
    texts = {name: REFUSING_APP.format(**fill) for name in OTHER_APPS}
    texts |= {"flwr-clientapp": FORKED_APP.format(function="clientapp", **fill)}
    texts |= {"flower-superexec": OWN_APP.format(function="superexec", **fill)}
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
        (folder / name).chmod(0o700)


def fork_apps(lines: Iterable[bytes]) -> None:
    """Fork a ClientApp for each command line; returns in the forked process, when it is done."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for these processes; the system clears them away
    for line in lines:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent(signal.SIGKILL)
            sys.argv = json.loads(line)
            clientapp()
            return


def die_with_parent(signum: int = signal.SIGTERM) -> None:
    """In a child: have the system send a signal when the parent is gone, however it went."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signum)


def supernode() -> None:
    """The process `flower-supernode`, which ends when its work does, so that it can be started anew.

    Flower's own goes on for ever with nothing at work: after it has given a connection up, the thread that serves its
    ClientApps keeps it, and a heartbeat that failed ends in its thread without a word. The site would stay absent.
    """

    def end(told: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(told)
        os._exit(1)

    threading.excepthook = end
    sys.argv[0] = "flower-supernode"
    code: object = 1
    try:
        from flwr.supernode.cli.flower_supernode import flower_supernode

        flower_supernode()
    except SystemExit as left:
        code = left.code
    except BaseException:  # whatever it was, this process ends, and its log says of what
        traceback.print_exc()
    os._exit(code if isinstance(code, int) else 1)


def superexec() -> None:
    """The process `flower-superexec`, which starts a ClientApp for each message. On a busy machine a call to the
    SuperNode may fail; nobody would start another."""
    from flwr.supercore.cli.flower_superexec import flower_superexec
    from httpx import TransportError

    while True:
        try:
            return flower_superexec()
        except TransportError as error:
            sys.stderr.write(f"prismfl: {type(error).__name__}; trying again\n")
            time.sleep(1.0)
