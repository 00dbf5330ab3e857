"""Imports only point down, and those who look at results cannot reach the records."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import prismfl

ROOT = Path(prismfl.__file__).parent
LAYERS = (
    ("errors", "sources", "rng", "atomic", "files", "run_files", "wire", "runtime", "__init__"),
    ("fast_conv", "plane_norm", "first_block"),
    ("data", "payloads"),
    ("privacy",),
    ("boundary",),
    ("method",),
    ("models",),
    ("methods",),
    ("rounds", "secure"),
    ("transcript",),
    ("config",),
    ("engines", "attacks", "metrics"),
    ("report",),
    ("experiment",),
    ("one_release",),
    ("audit", "holder", "holder_tables", "dashboard", "federation"),
    ("commands",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: i for i, names in enumerate(LAYERS) for name in names}
# Methods that share code import each other; what may look at results may not touch these.
FORBIDDEN = {"attacks": {"boundary", "data", "experiment"}, "metrics": {"boundary", "data", "experiment"}}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Top-level parts of prismfl that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "prismfl" else [node.module]
            )
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("prismfl.")}
    return {name for name in found if name in LEVEL or (ROOT / name).exists() or (ROOT / f"{name}.py").exists()}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = part(path)
    assert own in LEVEL, f"{own} has no layer: add it to LAYERS"
    if own == "__init__":
        return
    for name in imported(path):
        assert name in LEVEL, f"{name} has no layer: add it to LAYERS"
        assert name == own or LEVEL[name] <= LEVEL[own], f"{path.name} ({own}) imports {name}, which lies above it"
        assert name not in FORBIDDEN.get(own, set()), f"{path.name} may not import {name}"


def test_the_check_sees_an_import_that_points_up(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from prismfl.cli import main\n    from prismfl import boundary\n")
    assert imported(file) == {"cli", "boundary"}


def test_no_pickle_and_no_torch_load_anywhere() -> None:
    for path in modules():
        text = path.read_text()
        assert "torch.load(" not in text, path
        assert "import pickle" not in text, path


def test_only_the_adapter_imports_flower() -> None:
    users = {
        p.relative_to(ROOT).as_posix()
        for p in modules()
        if "import flwr" in p.read_text() or "from flwr" in p.read_text()
    }
    assert users <= {"engines/flower.py", "engines/flower_guard.py"}
