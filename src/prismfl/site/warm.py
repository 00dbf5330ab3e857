"""The process on a site that has everything imported and its data read, from which each ClientApp is forked."""

from __future__ import annotations

import os
from pathlib import Path

from prismfl.errors import quiet_crashes
from prismfl.transport.flower.guard import FIFO, fork_apps, import_flower


def main() -> None:
    """Import everything, read the site's data, and fork a ClientApp for each command that comes in."""
    os.umask(0o077)
    quiet_crashes()  # stderr goes into supernode.log, and so does that of the processes forked from here
    folder = Path(os.environ["PRISMFL_SITE"])
    # Opened before the imports, so that early commands wait in it; and for writing too, so that it never ends.
    with open(os.open(folder / "bin" / FIFO, os.O_RDWR), "rb") as lines:
        import_flower()
        import prismfl.site.app  # noqa: F401
        from prismfl.site.office import Office

        Office.open(folder).preload()
        fork_apps(lines)


if __name__ == "__main__":
    main()
