"""`prismfl leaves`: the manifest, as rows, as a table, and as the page of the docs."""

from __future__ import annotations

from pathlib import Path

from prismfl.methods import METHODS
from prismfl.report.manifest import manifest_page
from tests.cli.command import invoke, refused, shown


def test_every_item_that_leaves_is_named(tmp_path: Path) -> None:
    rows = {row["method"]: row["what leaves"] for row in shown("leaves", cwd=tmp_path)}
    assert list(rows) == list(METHODS)
    for name, words in rows.items():
        assert all(item in words for item in METHODS[name].leaves)
        assert METHODS[name].leaves or words == "nothing"


def test_the_page_of_the_docs(tmp_path: Path) -> None:
    assert invoke("leaves", "--format", "markdown", cwd=tmp_path).stdout == manifest_page()


def test_another_format_is_a_mistake(tmp_path: Path) -> None:
    refused("leaves", "--format", "xml", cwd=tmp_path, words="table or json")
