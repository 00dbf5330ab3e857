"""Generated documentation is up to date, and the method of the walkthrough really runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from prismfl.method import Method
from prismfl.methods import METHODS
from prismfl.report.manifest import manifest_page
from tests.laws import world

ROOT = Path(__file__).parents[1]


def test_the_manifest_page_is_the_code() -> None:
    """Write it anew with: python -m prismfl leaves --format markdown > docs/what-leaves-the-site.md"""
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
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]:
        text = path.read_text()
        for word in ("/work/", "/root/", "files.pythonhosted"):
            assert word not in text, f"{path.name} mentions {word}"
