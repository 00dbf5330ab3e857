"""`prismfl report`: one page and its twin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.cli.command import invoke, refused, shown


def test_page_and_twin_are_written(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    cwd, result = finished
    found = shown("report", result["run_dir"], "-o", tmp_path / "r.html", cwd=cwd)
    assert (found["edition"], found["page"]) == ("sharing", str(tmp_path / "r.html"))
    assert {row["run"] for row in found["checks"]} == {result["run_dir"]}
    assert "<html" in Path(found["page"]).read_text()
    assert json.loads(Path(found["twin"]).read_text())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    refused("report", tmp_path / "nothere", cwd=tmp_path, words="is not a run directory")


def test_a_folder_means_the_runs_below_it_and_files_beside_them_are_left(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, result = finished
    shutil.copytree(cwd / result["run_dir"], tmp_path / "runs" / "one")
    (tmp_path / "runs" / "old.html").write_text("")
    found = shown("report", "runs", cwd=tmp_path)
    assert found["page"] == "runs/report.html"
    assert {row["run"] for row in found["checks"]} == {"runs/one"}
    assert shown("report", "runs/old.html", "runs/one", cwd=tmp_path)["page"] == "runs/one/report.html"
    refused("report", "runs/one", "runs/typo", cwd=tmp_path, words="'runs/typo' is not a run directory")


def test_the_on_site_edition_has_another_name(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    done = invoke("report", result["run_dir"], "--on-site", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert (cwd / result["run_dir"] / "report-on-site.html").is_file()
    assert "on-site edition" in done.stdout
