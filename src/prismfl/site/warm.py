"""The process on a site that has everything imported and its data read, from which each ClientApp is forked. The first
request starts it: an idle site has no torch and no record in memory."""

from __future__ import annotations

import importlib
import os
import select
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prismfl.errors import PrismError, quiet_crashes
from prismfl.site.servers import place_of
from prismfl.transport.flower.guard import FIFO, fork_apps

Spawn = Callable[[], subprocess.Popen[bytes]]


class Waiting:
    """Starts the process when the first command is in the pipe, and again when one is and it has died."""

    def __init__(self, fifo: Path, spawn: Spawn) -> None:
        self.spawn = spawn
        self.process: subprocess.Popen[bytes] | None = None
        # For reading and writing: a command then waits in the pipe for whoever reads it.
        self._handle = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)

    def __call__(self) -> None:
        """Looks whether somebody has asked."""
        running = self.process is not None and self.process.poll() is None
        if not running and select.select([self._handle], [], [], 0)[0]:
            self.process = self.spawn()

    def close(self) -> None:
        """Nobody is waited for any more."""
        os.close(self._handle)


def main() -> None:
    """Import everything, read the site's data, and fork a ClientApp for each command that comes in."""
    os.umask(0o077)
    quiet_crashes()  # stderr goes into supernode.log, and so does that of the processes forked from here
    folder, server = Path(os.environ["PRISMFL_SITE"]), os.environ.get("PRISMFL_SERVER", "")
    # Opened before the imports, and for writing too, so that it never ends.
    with open(os.open(place_of(folder, server) / "bin" / FIFO, os.O_RDWR), "rb") as lines:
        prepare(folder, server)
        fork_apps(lines)


def prepare(folder: Path, server: str) -> None:
    """Import what an answer needs, torch with it, and read the site's data. What is wrong with them is not said here:
    a request that needs them is refused, and the site's log says why."""
    importlib.import_module("flwr.supernode.cli.flwr_clientapp")
    importlib.import_module("prismfl.site.app")
    from prismfl.site.office import Office

    with suppress(PrismError, OSError):
        Office.open(folder, server).preload()


if __name__ == "__main__":
    main()
