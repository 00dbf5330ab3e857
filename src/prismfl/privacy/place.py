"""Where a user's one lasting ledger lies."""

from __future__ import annotations

import os
from pathlib import Path

LEDGER_FILE = "ledger.sqlite"


def ledger_path() -> Path:
    told = os.environ.get("PRISMFL_LEDGER")
    base = Path(told) if told else Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "prismfl"
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    return base / LEDGER_FILE
