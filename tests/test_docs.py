"""Documentation is what the code is: generated pages, the method of the walkthrough, tests and keys that are named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from prismfl.federation.site_config import SiteConfig
from prismfl.method import Method
from prismfl.methods import METHODS
from prismfl.report.manifest import manifest_page
from tests.laws import world

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PROMISES = ("promise.md", "threat-model.md")
_TEST = re.compile(r"tests/[\w/.-]*\w(?:::(\w+))?")


def test_the_manifest_page_is_the_code() -> None:
    """Write it anew with: python -m prismfl leaves --format markdown > docs/reference/what-leaves-the-site.md"""
    assert (ROOT / "docs" / "what-leaves-the-site.md").read_text() == manifest_page()


def test_the_walkthrough_method_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "add-a-method.md").read_text()
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
    for path in [*PAGES, *(ROOT / "src").rglob("*.py")]:
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
    text = (ROOT / "docs" / page).read_text()
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
    rows = [cells for head, cells in tables((ROOT / "docs" / page).read_text()) if head[-1] == "test"]
    assert len(rows) > 20
    for cells in rows:
        assert _TEST.search(cells[-1]), f"no test behind: {cells[0]}"


def test_every_key_of_a_site_is_explained() -> None:
    rows = tables((ROOT / "docs" / "federate.md").read_text())
    explained = {key for head, cells in rows if head[0] == "key" for key in re.findall(r"`(\w+)`", cells[0])}
    assert set(SiteConfig.model_fields) - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target
