"""A user's own encoder from an ONNX file: a graph of standard operators, data and no code.

The file is read once, within a bound, its SHA-256 compared, and its graph looked through before onnxruntime gets the
same bytes: operators of other domains, functions, and tensors that lie in other files are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismfl.errors import UserError
from prismfl.files.bounded import read_regular
from prismfl.nets.encoders.base import Encoder
from prismfl.nets.encoders.wrapped import UNSAID, one_line, rows_of

SUFFIX = ".onnx"
MOST_BYTES = 512 * 2**20
DOMAINS = ("", "ai.onnx")
DRAWS = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
MOST_DEPTH = 8
MISSING = "An ONNX encoder needs onnx and onnxruntime; install them with: pip install 'prismfl[onnx]'."


class OnnxEncoder(Encoder):
    """An ONNX graph from one image input to one or several outputs, its layers. Not differentiable."""

    pretrained = True

    def __init__(self, session: Any, name: str, digest: str) -> None:
        super().__init__()
        self.session, self.name, self.file_digest = session, name, digest
        self.entry, self.channels, self.side = _entry(session, name)
        self.layers = tuple(one_line(out.name) for out in session.get_outputs())
        told = session.get_modelmeta().custom_metadata_map
        self.trained_on = one_line(told.get("trained_on")) or UNSAID

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows of each output. One image at a time: then no row hangs on its place among others."""
        found = [self._run(batch) for batch in torch.split(images, 1)]
        return {layer: torch.cat([part[layer] for part in found]) for layer in self.layers}

    def _run(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        array = np.ascontiguousarray(images.detach().cpu().numpy(), dtype=np.float32)
        try:
            answers = self.session.run(None, {self.entry: array})
        except _faults() as error:
            raise ValueError(_reason(error)) from None
        tensors = {name: torch.from_numpy(np.asarray(one)).to(images.device) for name, one in zip(self.layers, answers)}
        return rows_of(tensors, self.name)

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return self.file_digest


def read_file(path: Path, digest: str | None) -> tuple[bytes, str]:
    """The bytes of an encoder's file and their SHA-256, which must be the one that was said, if one was."""
    if not path.exists():
        raise UserError(f"There is no encoder's file '{path}'.")
    raw = read_regular(path, limit=MOST_BYTES)
    found = hashlib.sha256(raw).hexdigest()
    if digest is not None and found != digest:
        raise UserError(
            f"The encoder's file '{path}' has the SHA-256 {found[:16]}..., not {digest[:16]}... as was said."
        )
    return raw, found


def load_onnx(path: Path, *, digest: str | None = None, name: str | None = None) -> OnnxEncoder:
    """The encoder in an ONNX file; `name` is what reports call it, the file's name if it is not given."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise UserError(MISSING) from None
    from google.protobuf.message import DecodeError

    raw, found = read_file(path, digest)
    try:
        model = onnx.ModelProto.FromString(raw)
    except (DecodeError, ValueError, RuntimeError):
        raise UserError(f"'{path}' is not an ONNX file.") from None
    check_model(model, str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    except _faults() as error:
        raise UserError(f"onnxruntime cannot use '{path}': {_reason(error)}.") from None
    return OnnxEncoder(session, name or path.name, found)


def _faults() -> tuple[type[Exception], ...]:
    """What onnxruntime raises: classes that have nothing else in common."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
    return (RuntimeError, ValueError, *(found for name in names if (found := getattr(state, name, None)) is not None))


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")[:200]


def check_model(model: Any, where: str) -> None:
    """Refuse what is more than a graph of standard operators with its numbers in the same file."""
    others = [opset.domain for opset in model.opset_import if opset.domain not in DOMAINS]
    if others:
        raise UserError(f"'{where}' uses operators of '{others[0]:.60}'; only standard ONNX operators are run here.")
    if len(model.functions):
        raise UserError(f"'{where}' holds functions of its own; inline them when you export it.")
    for graph in _graphs(model.graph, where):
        if any(one.data_location == one.EXTERNAL or len(one.external_data) for one in _tensors(graph)):
            raise UserError(f"'{where}' keeps numbers in other files; export it as a single file.")
        for node in graph.node:
            if node.domain not in DOMAINS:
                raise UserError(
                    f"'{where}' uses operator '{node.op_type:.60}' of '{node.domain:.60}', not a standard one."
                )
            if node.op_type in DRAWS:
                raise UserError(f"'{where}' draws at random ({node.op_type}); an encoder may not.")


def _graphs(graph: Any, where: str, depth: int = 0) -> Iterator[Any]:
    """The graph and those inside its operators."""
    if depth > MOST_DEPTH:
        raise UserError(f"'{where}' has graphs nested deeper than {MOST_DEPTH}.")
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _graphs(inner, where, depth + 1)


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
            for sparse in [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []:
                yield from (sparse.values, sparse.indices)
            for sparse in attribute.sparse_tensors:
                yield from (sparse.values, sparse.indices)


def _entry(session: Any, name: str) -> tuple[str, int | None, int | None]:
    """The name of the only input, and the channels and the side that it wants."""
    entries = session.get_inputs()
    shape = list(entries[0].shape) if len(entries) == 1 else []
    fixed = [size if isinstance(size, int) else None for size in shape]
    good = len(shape) == 4 and entries[0].type == "tensor(float)" and fixed[0] in (None, 1)
    if not good or fixed[1] not in (None, 1, 3) or fixed[2] != fixed[3]:
        got = [f"{entry.type} {list(entry.shape)}" for entry in entries]
        raise UserError(
            f"Expected one input of encoder '{name}': float32 images (n, 1 or 3 channels, side, side), got "
            f"{', '.join(got):.200}."
        )
    return entries[0].name, fixed[1], fixed[2]
