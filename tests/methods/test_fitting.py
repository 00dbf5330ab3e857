"""The fit in a process of its own: the same tables come back, JAX stays out, and a fit that fails says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from prismfl.errors import UserError
from prismfl.methods.generators import fitting, graphical
from prismfl.methods.generators.questions import Counts
from prismfl.nets.columns import Columns
from prismfl.nets.discrete import Variables

TABLE = np.array([30.0, 10.0, 5.0, 55.0])


def asked(counts: np.ndarray) -> dict[str, np.ndarray]:
    found = {"sizes": [2, 2], "noise": [1.0], "total": 100.0, "steps": 500, "tables": 1, "clique.0": [0, 1]}
    return {
        **{name: np.array(value) for name, value in found.items()},
        "wanted.0": np.array([0, 1]),
        "counts.0": counts,
    }


@pytest.mark.skipif(not graphical.installed(), reason="needs mbi")
def test_a_table_comes_back_and_jax_is_not_loaded_here() -> None:
    code = "import sys; from tests.methods.test_fitting import *; found = fitting.ask(asked(TABLE))['wanted.0']\n"
    code += "print(found.ravel().round(1).tolist(), any(m.startswith(('jax', 'mbi')) for m in sys.modules))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    here = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here, env=env, check=True)
    assert done.stdout.strip() == f"{TABLE.tolist()} False"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import time; time.sleep(60)", "not ended after 1 s"),
        ("print('warning: not a table')", "its answer cannot be read"),
        ("import sys, io, numpy as np; f = io.BytesIO(); np.savez(f, a=[np.nan]); "
         "sys.stdout.buffer.write(f.getvalue())",
         "a is not finite"),
    ],
    ids=["hangs", "chatters", "diverges"],
)  # fmt: skip
def test_a_fit_that_hangs_or_answers_nonsense_is_ended(
    code: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.setattr(fitting, "__file__", str(tmp_path / "broken.py"))
    monkeypatch.setattr(fitting, "MOST_SECONDS", 1 if "sleep" in code else 60)
    with pytest.raises(fitting.FitError, match=words):
        fitting.ask(asked(TABLE))


def test_a_fit_that_fails_is_one_line_with_what_to_try(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise MemoryError('too large')\n")
    monkeypatch.setattr(fitting, "__file__", str(broken))
    variables = Variables.of(Columns.parse(["b"]), bins=2, labels=2)
    tables: dict[tuple[int, ...], Counts] = {(0, 1): Counts(torch.from_numpy(TABLE), 1.0)}
    with pytest.raises(
        UserError, match=r"not fitted \(exit code 1, MemoryError: too large\); try a smaller model_cells"
    ):
        graphical.fit(variables, tables, [(0, 1)], steps=5)
