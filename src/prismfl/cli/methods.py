"""`prismfl methods`: what there is to run."""

from __future__ import annotations

from prismfl.cli import terminal
from prismfl.cli.options import Format


def methods(fmt: Format = "table") -> None:
    """Every method, what protects it and where it comes from."""
    from prismfl.report.listings import method_rows

    terminal.rows("Methods", method_rows(), fmt)
