"""`prismfl leaves`: the manifest of every method."""

from __future__ import annotations

from prismfl.cli import terminal
from prismfl.cli.options import Format


def leaves(fmt: Format = "table") -> None:
    """The manifest of every method: what leaves a site, at what cost, for which unit."""
    from prismfl.report.manifest import manifest, manifest_page

    if fmt == "markdown":
        terminal.out(manifest_page().rstrip("\n"))
        return
    terminal.rows("What leaves a site", manifest(), fmt)
