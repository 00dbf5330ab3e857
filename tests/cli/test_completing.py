"""What the shell completes: the real names, without importing what is heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prismfl.cli import completing
from prismfl.data import DATASETS, parse_split, public_names
from prismfl.methods import METHODS
from prismfl.nets.encoders.names import NAMES
from tests.cli.test_main import HEAVY


def test_the_names_are_those_of_the_code() -> None:
    assert completing.method_names() == list(METHODS)
    assert completing.data_names() == list(DATASETS)
    assert set(completing.complete_public("procedural")) <= set(public_names())
    assert set(NAMES) < set(completing.ENCODERS)
    assert [str(parse_split(split)).partition("(")[0] for split in completing.SPLITS]


def test_only_what_begins_so() -> None:
    assert completing.complete_method("fedpr") == ["fedprox"]
    assert completing.complete_data("mnist") == ["mnist-5k", "mnist"]
    assert completing.complete_split("path") == ["pathological(2)"]
    assert completing.complete_encoder("sca") == ["scattering"]
    assert completing.complete_data("/home") == []


@pytest.mark.parametrize(
    ("line", "found"),
    [("prismfl run -m fedpr", "fedprox"), ("prismfl partition dig", "digits"), ("prismfl help own", "own-data")],
)
def test_in_a_shell_and_nothing_heavy_is_loaded(line: str, found: str, tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['prismfl']; from prismfl.cli.main import main\n"
        f"try: main()\nfinally: sys.stderr.write(' '.join(sorted(sys.modules.keys() & {set(HEAVY)!r})))"
    )
    asked = {"_PRISMFL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == ([found], "")
