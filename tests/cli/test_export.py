"""`prismfl export`: a file and its card, or one line and nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import invoke, refused, shown


def test_a_model_and_its_card(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    cwd, result = finished
    found = shown("export", result["run_dir"], "--to", "safetensors", "-o", tmp_path / "new", cwd=cwd)
    assert found["model"] == "network"
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["MODEL_CARD.md", "model.safetensors"]
    done = invoke("export", result["run_dir"], "--to", "safetensors", "-o", tmp_path / "a.safetensors", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert {"MODEL_CARD.md", "a.safetensors"} < {p.name for p in tmp_path.iterdir()}


def test_mistakes(finished: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cwd, result = finished
    run, out = result["run_dir"], tmp_path / "new"
    refused("export", run, "--to", "images", "-o", out, cwd=cwd, words="holds no synthetic set")
    refused("export", run, "--to", "pickle", "-o", out, cwd=cwd, words="Expected --to torch")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused("export", run, "--to", "onnx", "-o", out, cwd=cwd, words="prismfl[onnx]")
    assert not out.exists()
