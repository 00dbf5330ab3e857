"""`prismfl doctor` on this machine alone; what it finds is in tests/report/test_doctor.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import shown


def test_this_machine_is_looked_at_without_a_folder(tmp_path: Path) -> None:
    found = {one["what"]: one for one in shown("doctor", cwd=tmp_path)}
    assert found["python"]["verdict"] == "ok"
    assert found["ledger"]["verdict"] in ("ok", "look")
