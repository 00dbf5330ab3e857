"""`prismfl bundle`: what is refused before a site is opened; the rounds are in tests/site/test_bundle.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import refused


def test_code_by_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('method = "os:system"\ndata = "digits"\n')
    for word in ("export", "import"):
        args = ("bundle", word, "site", "run.toml", "shared")
        refused(*args, cwd=tmp_path, words="only run, plan and resume import code")


def test_a_folder_that_is_no_site(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('method = "dp-fedavg"\ndata = "digits"\nepsilon = 1.0\n')
    refused("bundle", "export", "site", "run.toml", "shared", cwd=tmp_path, words="No site.toml")
