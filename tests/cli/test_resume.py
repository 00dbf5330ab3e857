"""`prismfl resume`: a run that was cut off goes on, and one of another version does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.runs import choosing, simulate
from prismfl.runs.directory import RunDirectory
from tests.cli.command import invoke, shown

VALUES = {"method": "dp-fedavg", "data": "digits", "model": "logreg", "sites": 2, "epsilon": 4.0}


def test_a_run_of_another_version_is_refused(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 999, "status": "running"}')
    done = invoke("resume", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "format 999" in done.stderr


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, finished: tuple[Path, dict[str, Any]]) -> None:
    """Stopped in its second round, it ends as the run that nobody stopped did, at the same charge."""
    whole = finished[1]

    def stop(what: str, done: int, total: int) -> None:
        if "epsilon" in what and done % 2:
            raise KeyboardInterrupt

    asked, _ = choosing.ask(None, ["rounds=2", "steps=3"], {**VALUES, "out": str(tmp_path / "run")})
    with pytest.raises(KeyboardInterrupt):
        simulate.run(asked, progress=stop)
    assert RunDirectory.open(tmp_path / "run").status == "running"
    again = shown("resume", "run", cwd=tmp_path)
    for key in ("digest", "epsilon", "accuracy", "bytes_up"):
        assert again[key] == whole[key]


def test_a_finished_run_just_reports(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    assert shown("resume", result["run_dir"], cwd=cwd) == result
