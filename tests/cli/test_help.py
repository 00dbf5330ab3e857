"""`prismfl help`: the how-to pages, offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.cli.help import FIRST, SHORT, topics
from tests.cli.command import invoke, refused

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def test_every_page_is_a_topic_and_those_of_own_data_come_first() -> None:
    found = topics()
    assert len(found) == len(list(PAGES.glob("*.md")))
    assert tuple(found)[: len(FIRST)] == FIRST
    assert all(text.startswith("# ") for text in found.values())


def test_without_a_topic_all_are_listed(tmp_path: Path) -> None:
    done = invoke("help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(name in done.stdout for name in topics())


@pytest.mark.parametrize("topic", FIRST)
def test_a_page_is_printed_without_links(topic: str, tmp_path: Path) -> None:
    done = invoke("help", topic, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (PAGES / f"{SHORT.get(topic, topic)}.md").read_text()
    assert done.stdout.startswith(page.partition("\n")[0])
    assert "](" not in done.stdout
    assert len(done.stdout) > 0.8 * len(page)


def test_a_page_is_found_by_its_own_name_too(tmp_path: Path) -> None:
    assert invoke("help", "which-method", cwd=tmp_path).stdout == invoke("help", "methods", cwd=tmp_path).stdout


def test_the_nearest_topic(tmp_path: Path) -> None:
    refused("help", "spilts", cwd=tmp_path, words="did you mean 'splits'?")
    refused("help", "zzz", cwd=tmp_path, words="known: own-data, schema")


def test_the_wheel_is_told_to_hold_them() -> None:
    """In the tree the package's folder is a link to the pages, so that there is one copy; an sdist holds files."""
    held = Path(__file__).parents[2] / "src" / "prismfl" / "pages"
    texts = [{page.name: page.read_text() for page in folder.glob("*.md")} for folder in (held, PAGES)]
    assert texts[0] == texts[1]
    assert '"pages/*.md"' in (PAGES.parents[1] / "pyproject.toml").read_text()
