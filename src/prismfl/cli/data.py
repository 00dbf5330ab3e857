"""`prismfl data`: the data sets that have a name."""

from __future__ import annotations

from prismfl.cli import terminal
from prismfl.cli.options import DataDir, Format


def data(data_dir: DataDir = None, fmt: Format = "table") -> None:
    """Data sets by name, and which of them are at hand."""
    from prismfl.report.listings import data_rows, public_words

    terminal.rows("Data sets", data_rows(data_dir), fmt, caption=public_words())
