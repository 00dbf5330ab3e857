"""`prismfl demo`: its runs, made small; the runs as they are shipped are presets (tests/test_presets.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.cli import demo
from tests.cli.command import shown


def test_it_ends_in_a_table_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "COMMON", {"data": "digits", "sites": 2, "model": "logreg"})
    small = {"local-only": {"settings": {"epochs": 1}}, "fedavg": {"settings": {"rounds": 1, "epochs": 1}}}
    monkeypatch.setattr(demo, "RUNS", small)
    rows = shown("demo", "-o", "out", cwd=tmp_path)
    assert {row["method"] for row in rows} == set(small)
    assert (tmp_path / "out" / "report.html").is_file()
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == set(small)
