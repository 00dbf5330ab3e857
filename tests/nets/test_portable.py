"""Files of modules: they answer as the module does, for any number of records, without this package."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.classifier import build
from prismfl.nets.portable import onnx_file, run_onnx, tensors_of, torch_file
from prismfl.rng import Key

SHAPE = (1, 8, 8)


def network() -> nn.Module:
    return build("convnet:4", SHAPE, 3, key=Key.seed(1))[0].module.eval()


def images(count: int = 5) -> torch.Tensor:
    return torch.rand(count, *SHAPE, generator=Key.seed(2).torch())


def test_torch_answers_the_same_and_tells_its_notes() -> None:
    module = network()
    raw = torch_file(module, SHAPE, notes={"prismfl.json": json.dumps({"a": 1})})
    extra = {"prismfl.json": ""}
    loaded = torch.export.load(io.BytesIO(raw), extra_files=extra).module()
    with torch.no_grad():
        assert torch.equal(loaded(images()), module(images()))
    assert json.loads(extra["prismfl.json"]) == {"a": 1}


@pytest.mark.processes
def test_the_torch_file_is_read_without_prismfl(tmp_path: Path) -> None:
    (tmp_path / "a.pt2").write_bytes(torch_file(network(), SHAPE, notes={}))
    code = "import sys, torch; model = torch.export.load('a.pt2').module(); "
    code += "print(tuple(model(torch.zeros(4, 1, 8, 8)).shape), 'prismfl' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, env={}
    )
    assert said.stdout.strip() == "(4, 3) False"


class OfTwo(nn.Module):
    """Knows how many records it was made with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) * float(len(x))


def test_what_torch_cannot_write_is_one_line() -> None:
    with pytest.raises(UserError, match="cannot be written as torch file") as error:
        torch_file(OfTwo(), (4,), notes={})
    assert "\n" not in str(error.value)


class Drawing(nn.Module):
    """Answers otherwise each time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(4)


def test_a_file_that_answers_otherwise_is_not_handed_over() -> None:
    with pytest.raises(UserError, match="answers otherwise"):
        torch_file(Drawing(), (4,), notes={})


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'prismfl\[onnx\]'"):
        onnx_file(network(), SHAPE, notes={})


def test_onnxruntime_gives_the_same_logits() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    module = network()
    raw = onnx_file(module, SHAPE, notes={"classes": "[]"})
    with torch.no_grad():
        assert np.abs(run_onnx(raw, images().numpy()) - module(images()).numpy()).max() < 1e-4


def test_tensors_are_copies_of_their_own() -> None:
    module = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = tensors_of(module)
    assert set(found) == set(module.state_dict())
    assert all(tensor.is_contiguous() for tensor in found.values())
    found["0.weight"].zero_()
    assert float(module.state_dict()["0.weight"].abs().sum()) > 0
