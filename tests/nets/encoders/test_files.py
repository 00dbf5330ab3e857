"""An ONNX file as an encoder: a graph of standard operators with its numbers inside, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from prismfl.errors import UserError
from prismfl.nets.encoders import files
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.files import load_onnx, read_file
from prismfl.nets.encoders.wrapped import UNSAID
from tests.nets.encoders.graphs import maps

IMAGES = torch.rand(5, 1, 9, 9)


def test_a_files_digest_is_compared_before_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    assert read_file(tmp_path / "x", digest) == (b"abc", digest)
    with pytest.raises(UserError, match="as was said"):
        read_file(tmp_path / "x", "0" * 64)
    with pytest.raises(UserError, match="There is no encoder's file"):
        read_file(tmp_path / "y", None)
    with pytest.raises(UserError, match="regular file"):
        read_file(tmp_path, None)


def test_its_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    monkeypatch.setattr(files, "MOST_BYTES", 2)
    with pytest.raises(UserError, match="larger than the limit"):
        read_file(tmp_path / "x", None)


@pytest.fixture
def _runtime() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")


@pytest.mark.usefixtures("_runtime")
def test_the_rows_are_the_graphs(tmp_path: Path) -> None:
    own = check_encoder(load_onnx(maps(tmp_path / "net.onnx")), IMAGES)
    weight = torch.linspace(-1, 1, 36).reshape(4, 1, 3, 3)
    found = F.conv2d(IMAGES, weight)
    rows = own.activations(IMAGES)
    assert (own.name, own.layers, own.pretrained, own.trained_on) == ("net.onnx", ("maps", "rows"), True, UNSAID)
    assert torch.allclose(rows["maps"], found.mean((2, 3)), atol=1e-5)
    assert torch.allclose(rows["rows"], found.square().mean((2, 3)), atol=1e-4)
    assert own.digest == hashlib.sha256((tmp_path / "net.onnx").read_bytes()).hexdigest()


@pytest.mark.usefixtures("_runtime")
def test_it_says_what_images_it_wants(tmp_path: Path) -> None:
    own = load_onnx(maps(tmp_path / "a.onnx", batch=1, channels=3, side=16, metadata={"trained_on": "le\naflets"}))
    assert (own.channels, own.side, own.trained_on) == (3, 16, "le aflets")
    assert check_encoder(own, IMAGES).activations(IMAGES)["rows"].shape == (5, 4)


def custom(nodes: list[Any]) -> list[Any]:
    from onnx import helper

    return [*nodes, helper.make_node("Evil", ["x"], ["evil"], domain="com.evil")]


def drawn(nodes: list[Any]) -> list[Any]:
    from onnx import helper

    return [*nodes, helper.make_node("RandomNormal", [], ["noise"], shape=[2])]


def hidden(nodes: list[Any]) -> list[Any]:
    """An operator of another domain inside a branch."""
    from onnx import TensorProto, helper

    out = helper.make_tensor_value_info("e", TensorProto.FLOAT, None)
    inner = helper.make_graph([helper.make_node("Evil", ["x"], ["e"], domain="com.evil")], "inner", [], [out])
    return [*nodes, helper.make_node("If", ["c"], ["e"], then_branch=inner, else_branch=inner)]


def elsewhere(nodes: list[Any]) -> list[Any]:
    """A constant whose numbers lie in another file."""
    from onnx import TensorProto, helper

    value = TensorProto(data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="/etc/passwd")
    return [*nodes, helper.make_node("Constant", [], ["k"], value=value)]


def unknown(nodes: list[Any]) -> list[Any]:
    from onnx import helper

    return [*nodes, helper.make_node("NoSuchOperator", ["x"], ["nothing"])]


@pytest.mark.usefixtures("_runtime")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"domains": ["com.microsoft"]}, "uses operators of 'com.microsoft'"),
        ({"nodes": custom}, "'Evil' of 'com.evil'"),
        ({"nodes": hidden}, "'Evil' of 'com.evil'"),
        ({"nodes": drawn}, "draws at random"),
        ({"external": "../weights.bin"}, "numbers in other files"),
        ({"external": "weights.bin"}, "numbers in other files"),
        ({"nodes": elsewhere}, "numbers in other files"),
        ({"nodes": unknown}, "onnxruntime cannot use"),
        ({"batch": 2}, "Expected one input"),
        ({"channels": 4}, "Expected one input"),
        ({"type": 7}, "onnxruntime cannot use"),
    ],
)
def test_more_than_a_graph_is_refused(tmp_path: Path, changes: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    path = maps(tmp_path / "net.onnx", **changes)
    if "onnxruntime" not in told and "input" not in told:

        def never(*_: object, **__: object) -> None:
            raise AssertionError("a session was made of a file that is refused")

        monkeypatch.setattr(onnxruntime, "InferenceSession", never)
    with pytest.raises(UserError) as error:
        load_onnx(path)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("_runtime")
def test_functions_are_refused(tmp_path: Path) -> None:
    from onnx import helper

    opset = [helper.make_opsetid("", 13)]
    made = helper.make_function("", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opset)
    with pytest.raises(UserError, match="functions of its own"):
        load_onnx(maps(tmp_path / "net.onnx", functions=[made]))


@pytest.mark.usefixtures("_runtime")
def test_what_is_no_graph_is_told(tmp_path: Path) -> None:
    for i, raw in enumerate((b"", b"no graph", b"\x08\x08" * 50, bytes(range(256)))):
        (tmp_path / f"{i}.onnx").write_bytes(raw)
        with pytest.raises(UserError) as error:
            load_onnx(tmp_path / f"{i}.onnx")
        assert "\n" not in str(error.value)


def test_without_onnxruntime_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'prismfl\[onnx\]'"):
        load_onnx(tmp_path / "net.onnx")
