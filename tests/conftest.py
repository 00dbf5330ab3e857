"""One torch thread everywhere: two were up to sixteen times slower on a busy machine. A ledger for every test."""

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["PRISMFL_TUNING"] = "fixed"  # a rehearsal takes a minute; tests of it ask for it

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_ledger(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's one ledger, in a place of this test's own."""
    place = tmp_path_factory.mktemp("ledger")
    monkeypatch.setenv("PRISMFL_LEDGER", str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    return place


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start real processes run one after the other within a file: they share them, and have deadlines."""
    for item in items:
        if item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
