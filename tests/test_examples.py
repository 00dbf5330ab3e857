"""Every script of examples/ runs as it stands, offline, and says what its page says it says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.cli.command import run_json

FOLDER = Path(__file__).parents[1] / "examples"
SAYS = {
    "classifier": ("table: accuracy", "benign", "images, linear: accuracy", "noise from the operating system"),
    "compare_methods": ("prism-head", "∞", "nothing leaves"),
    "own_method": ("planned: 1 x Gaussian", "accuracy"),
    "plan_before_running": ("more noise in each",),
    "read_a_synthetic_set": ("a batch of (16, 1, 8, 8)", "(8, 8) pixels, label 0", "folders: ['0', '1', '2'"),
    "read_a_release": ("round 1:", "1.weight (10, 64)", "seeded", "'site-2'"),
    "run_a_method": ("simulation: no protection", "kB up"),
    "use_a_model": ("models: head - recommended: head", "predicted: ['", "classes: ['0' '1'"),
    "synthesizer": ("20 images of shape (1, 8, 8)", "noise from the operating system"),
}
LEARNS = {"own_method": 60.0, "run_a_method": 75.0}  # guessing is 10; the noise is seeded


def test_every_script_is_run_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_it_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    for words in SAYS[name]:
        assert words in said
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"
    if name in LEARNS:
        assert found["result"].accuracy > LEARNS[name]


def test_a_method_of_ones_own_is_also_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    args = ("-m", "own_method:METHOD", "-d", "digits", "-n", "3", "-e", "1", "-o", "run")
    found = run_json(*args, cwd=tmp_path)
    assert found["method"] == "class-sums"
    assert found["accuracy"] > LEARNS["own_method"]
    monkeypatch.delitem(sys.modules, "own_method")
