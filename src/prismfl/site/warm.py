"""The process on a site that has everything imported and its data read, from which each ClientApp is forked."""

from __future__ import annotations

import os
from pathlib import Path

from prismfl.errors import quiet_crashes
from prismfl.site.servers import place_of
from prismfl.transport.flower.guard import FIFO, fork_apps, import_flower


def main() -> None:
    """Import everything, read the site's data, and fork a ClientApp for each command that comes in."""
    os.umask(0o077)
    quiet_crashes()  # stderr goes into supernode.log, and so does that of the processes forked from here
    folder, server = Path(os.environ["PRISMFL_SITE"]), os.environ.get("PRISMFL_SERVER", "")
    # Opened before the imports, so that early commands wait in it; and for writing too, so that it never ends.
    with open(os.open(place_of(folder, server) / "bin" / FIFO, os.O_RDWR), "rb") as lines:
        import_flower()
        import prismfl.site.app  # noqa: F401
        from prismfl.site.office import Office

        Office.open(folder, server).preload()
        fork_apps(lines)


if __name__ == "__main__":
    main()
