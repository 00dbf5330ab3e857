"""One small private run that several commands are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import SMALL, run_json


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    cwd = tmp_path_factory.mktemp("cli")
    return cwd, run_json(*SMALL, cwd=cwd)
