"""What `import prismfl` offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import prismfl
from prismfl.runs import planning, simulate


def test_everything_that_is_exported_exists() -> None:
    for name in prismfl.__all__:
        assert getattr(prismfl, name) is not None


def test_import_is_light() -> None:
    code = "import sys, prismfl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=240).returncode == 0


def test_run_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = prismfl.run(method="fedavg", data="digits", model="logreg", sites=2, rounds=1, epochs=1)
    assert result.accuracy is not None
    assert Path(result.run_dir).is_dir()
    with pytest.raises(prismfl.UserError, match="did you mean 'epochs'"):
        prismfl.run(method="fedavg", data="digits", epochz=1)


def test_progress_tells_what_was_spent_so_far(tmp_path: Path) -> None:
    settings = {"rounds": 2, "steps": 2, "batch": 64.0}
    told: list[str] = []
    result = simulate.run(
        planning.configure(
            {"method": "dp-fedavg", "data": "digits", "model": "logreg", "sites": 2, "epsilon": 2.0,
             "settings": settings, "out": str(tmp_path / "run")}
        ),
        progress=lambda what, done, total: told.append(what),
    )  # fmt: skip
    first, later = told[0], told[-1]
    assert "epsilon" not in first
    spent = float(later.split("epsilon ")[1].split()[0])
    assert result.epsilon is not None
    assert 0 < spent < result.epsilon


def test_plan_from_python() -> None:
    plan = prismfl.plan(method="dp-fedavg", data="mnist-5k", epsilon=1.0)
    assert plan.epsilon is not None
    assert 0.98 <= plan.epsilon <= 1.0
