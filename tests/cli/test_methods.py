"""`prismfl methods`: every method with what protects it."""

from __future__ import annotations

from pathlib import Path

from prismfl.methods import METHODS
from tests.cli.command import invoke, shown


def test_every_method_is_listed_with_its_guarantee(tmp_path: Path) -> None:
    rows = {row["method"]: row for row in shown("methods", cwd=tmp_path)}
    assert list(rows) == list(METHODS)
    assert (rows["fedavg"]["guarantee"], rows["dp-fedavg"]["guarantee"]) == ("none", "site")
    assert (rows["fedavg"]["settings"], rows["dp-merf"]["settings"]) == ("plain", "auto")
    assert all(row["what it does"] for row in rows.values())


def test_people_get_a_table(tmp_path: Path) -> None:
    text = invoke("methods", cwd=tmp_path, env={"COLUMNS": "200"}).stdout
    assert "Methods" in text
    assert all(name in text for name in METHODS)
