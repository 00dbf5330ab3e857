"""`prismfl figures`: pictures of runs; what they show is in tests/report/test_figures.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.command import refused, shown


def test_what_there_is_to_draw_is_drawn(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    cwd, result = finished
    rows = shown("figures", result["run_dir"], "-o", tmp_path / "out", cwd=cwd)
    assert [row["figure"] for row in rows] == ["progress"], "a run without synthetic images"
    assert {row["file"] for row in rows} == {str(path) for path in (tmp_path / "out").iterdir()}


def test_gradient_norms_need_images(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    cwd, result = finished
    args = ("figures", result["run_dir"], "--on-site", "-o", tmp_path / "out")
    refused(*args, cwd=cwd, words="kept no synthetic images")
