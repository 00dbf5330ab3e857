"""What `import prismfl` offers: the typed face over the keys of a config."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import prismfl
from prismfl.runs import planning, simulate
from prismfl.runs.config import RunConfig

# Python takes more here than a config file: an object, any mapping.
WIDER = {"method": str | prismfl.Method, "secure": Mapping[str, int] | None, "settings": Mapping[str, Any] | None}


def test_everything_that_is_exported_exists() -> None:
    assert {name for name in prismfl.__all__ if getattr(prismfl, name) is None} == set()
    assert set(prismfl.__all__) <= set(dir(prismfl))
    with pytest.raises(AttributeError, match="no attribute 'ran'"):
        getattr(prismfl, "r" + "an")


def test_import_is_light() -> None:
    code = (
        "import sys, prismfl; prismfl.run, prismfl.open_run; sys.exit(bool({'torch', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=240).returncode == 0


@pytest.mark.parametrize("face", [prismfl.run, prismfl.plan])
def test_the_face_takes_every_key_of_a_config(face: Callable[..., Any]) -> None:
    """A key, default or type that is added to the config alone turns this red."""
    names = {name: getattr(prismfl, name) for name in ("Method", "Plan", "Result")}
    types, given = typing.get_type_hints(face, localns=names), inspect.signature(face).parameters
    *keys, more = given.values()
    assert more.kind is inspect.Parameter.VAR_KEYWORD
    assert [key.name for key in keys] == list(RunConfig.model_fields)
    assert {key.kind for key in keys[1:]} == {inspect.Parameter.KEYWORD_ONLY}
    for key, (name, field) in zip(keys, RunConfig.model_fields.items()):
        default = None if name == "settings" else field.default
        assert (key.default, types[name]) == (default, WIDER.get(name, field.annotation)), name


def test_run_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = prismfl.run("fedavg", data="digits", model="logreg", sites=2, settings={"rounds": 1}, epochs=1)
    assert result.accuracy is not None
    assert Path(result.run_dir).is_dir()
    assert prismfl.open_run(result.run_dir).config.settings["epochs"] == 1
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
    first, later = told[0], [line for line in told if line.startswith("round 2")][-1]
    assert "epsilon" not in first
    assert result.epsilon is not None
    spent = float(later.split("epsilon ")[1].split()[0])
    assert result.epsilon is not None
    assert 0 < spent < result.epsilon
    assert {line.partition(",")[0] for line in told} == {"round 1", "round 2", "scoring held-out records"}


def test_plan_from_python() -> None:
    plan = prismfl.plan(method="dp-fedavg", data="mnist-5k", epsilon=1.0)
    assert plan.epsilon is not None
    assert 0.98 <= plan.epsilon <= 1.0
