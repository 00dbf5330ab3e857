"""Documentation is what the code is: generated pages, the method of the walkthrough, tests and keys that are named."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from prismfl import __version__
from prismfl.core.method import Method
from prismfl.methods import METHODS
from prismfl.report.manifest import manifest_page
from prismfl.site.config import SiteConfig
from tests.laws import world

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PROMISES = ("explanation/promise.md", "explanation/threat-model.md")
_TEST = re.compile(r"tests/[\w/.-]*\w(?:::(\w+))?")


def _made() -> ModuleType:
    """docs/generated.py: the pages that are made from the code when the site is built."""
    spec = importlib.util.spec_from_file_location("generated", DOCS / "generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = _made()


def test_the_manifest_page_is_the_code() -> None:
    """Write it anew with: python -m prismfl leaves --format markdown > docs/reference/what-leaves-the-site.md"""
    assert (DOCS / "reference" / "what-leaves-the-site.md").read_text() == manifest_page()


def test_changelog_and_citation_tell_the_version_of_the_code() -> None:
    released = re.findall(
        r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M
    )
    assert released[0] == __version__
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_walkthrough_method_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "how-to" / "add-a-method.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    space: dict[str, object] = {"__name__": "noisy_mean"}
    exec(compile(code, "noisy_mean.py", "exec", dont_inherit=True), space)
    method = space["METHOD"]
    assert isinstance(method, Method)
    monkeypatch.setitem(METHODS, method.name, method)
    made = world.make_world(world.make_job("noisy-mean", sigma=0.1), tmp_path)
    state, _ = made.run()
    assert made.charged(made.hosts[0].ledger) == made.job.plan()
    records = made.hosts[0].records()
    assert method.predict is not None
    scores = method.predict(made.job.settings, made.job.task, state.items, records.x)
    assert float((scores.argmax(1) == records.y).float().mean()) > 0.9
    assert isinstance(scores, torch.Tensor)


def test_the_project_speaks_of_itself_alone() -> None:
    for path in [*PAGES, *(ROOT / "src").rglob("*.py"), *DOCS.glob("*.py"), *(ROOT / "examples").glob("*.py")]:
        text = path.read_text()
        for word in ("/work/", "/root/", "files.pythonhosted"):
            assert word not in text, f"{path.name} mentions {word}"


def tables(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The head and the cells of each row of each table."""
    head: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            head = []
        elif not head:
            head = cells
        elif set(line) - set("|-: "):
            yield head, cells


@pytest.mark.parametrize("page", PROMISES)
def test_the_test_behind_each_promise_exists(page: str) -> None:
    text = (DOCS / page).read_text()
    found = list(_TEST.finditer(text))
    assert len(found) > 20, "the tests are named by their path"
    for match in found:
        path = ROOT / match[0].partition("::")[0]
        assert path.exists(), match[0]
        if match[1] is not None:
            defined = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
            assert match[1] in defined, match[0]


@pytest.mark.parametrize("page", PROMISES)
def test_no_promise_without_a_test(page: str) -> None:
    rows = [cells for head, cells in tables((DOCS / page).read_text()) if head[-1] == "test"]
    assert len(rows) > 20
    for cells in rows:
        assert _TEST.search(cells[-1]), f"no test behind: {cells[0]}"


def test_every_key_of_a_site_is_explained() -> None:
    rows = tables((DOCS / "how-to" / "federate.md").read_text())
    explained = {key for head, cells in rows if head[0] == "key" for key in re.findall(r"`(\w+)`", cells[0])}
    assert set(SiteConfig.model_fields) - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    made = {(DOCS / name).resolve() for name in MADE.PAGES}
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        path = (page.parent / target).resolve()
        assert target.startswith("https://") or path.exists() or path in made, target


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(part)


def test_every_page_is_in_the_navigation_once_and_nothing_else_is() -> None:
    named = list(_leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(named) == len(set(named))
    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert written - set(named) == set(), "a page that nobody finds"
    assert set(named) - written - set(MADE.PAGES) == set(), "a page that is not there"


def test_the_site_fetches_nothing() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert site["theme"]["font"] is False, "Google's fonts"
    assert not [path for path in (*site["extra_css"], *site["extra"]["polyfills"]) if "//" in path]
    assert {"search", "offline"} <= {next(iter(p)) if isinstance(p, dict) else p for p in site["plugins"]}
    assert site["use_directory_urls"] is False, "pages open from disk"


def test_examples_that_pages_name_exist() -> None:
    named = {name for page in PAGES for name in re.findall(r"examples/(\w+\.(?:py|ipynb))", page.read_text())}
    assert {name for name in named if not (ROOT / "examples" / name).exists()} == set()


def _code(page: Path) -> str:
    return "\n".join(re.findall(r"```\w*\n(.*?)```", page.read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_settings_that_pages_show_exist(page: Path) -> None:
    known = {name.removeprefix("prismfl ") for name in MADE.commands()}
    for words in re.findall(r"(?:^|\$ )prismfl ([a-z]+(?: [a-z]+\b)?)", _code(page), flags=re.MULTILINE):
        assert words in known or words.split()[0] in known, f"prismfl {words}"
    keys = set(MADE.defined("RunConfig").model_fields).union(*(m.settings.model_fields for m in METHODS.values()))
    assert set(re.findall(r"--set (\w+)=", page.read_text())) - keys - {"key", "onsite"} == set()


def test_generated_pages_hold_every_setting_command_method_and_module() -> None:
    settings = MADE.settings_page()
    for method in METHODS.values():
        part = settings.partition(f"### {method.name}\n")[2].partition("\n### ")[0]
        assert {key for key in method.settings.model_fields if f"`{key}`" not in part} == set(), method.name
    assert {name for name in METHODS if f"`{name}`" not in MADE.methods_page()} == set()
    line = MADE.command_line_page()
    assert {name for name in MADE.commands() if f"## {name}\n" not in line} == set()
    api = "".join(MADE.api_page(package) for package in MADE.packages())
    lacking = [path for path in MADE.modules() if path.name[:2] != "__" and f"::: {MADE.dotted(path)}\n" not in api]
    assert lacking == []
