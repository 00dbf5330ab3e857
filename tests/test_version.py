"""The version stands once, and everything that tells it tells the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import prismfl
from prismfl import version


def test_one_version_for_package_and_build() -> None:
    build = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert build["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "prismfl.version.__version__"}
    assert prismfl.__version__ == version.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version.__version__)


def test_nothing_inside_imports_the_face() -> None:
    """The face reaches for everything: who imports it for a number closes a circle."""
    for path in Path(prismfl.__file__).parent.rglob("*.py"):
        assert "from prismfl import __version__" not in path.read_text(), path
