"""A module as a file that others load without this package: torch's own (torch.export), ONNX, or its tensors alone.

Each file is tried before it is handed over: it must answer as the module does.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, util
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.rng import Key

CLOSE = 1e-3  # of the largest logit
_ANY = ({0: torch.export.Dim("n")},)  # any number of records


def torch_file(module: nn.Module, shape: tuple[int, ...], *, notes: Mapping[str, str]) -> bytes:
    """A file for `torch.export.load` that takes any number of records; `notes` lie in it as files of their own."""
    file = io.BytesIO()
    with torch.no_grad(), _attempt("torch"):
        program = torch.export.export(module, (torch.zeros(2, *shape),), dynamic_shapes=_ANY)
        torch.export.save(program, file, extra_files=dict(notes))
        file.seek(0)
        loaded = torch.export.load(file).module()
        _compare(module, lambda x: loaded(x).numpy(), shape, "torch")
    return file.getvalue()


def onnx_file(module: nn.Module, shape: tuple[int, ...], *, notes: Mapping[str, str], inputs: str = "images") -> bytes:
    """An ONNX file from `inputs` (any number of records) to `logits`; `notes` are its metadata."""
    if util.find_spec("onnx") is None or util.find_spec("onnxscript") is None:
        raise UserError("ONNX files need further packages; install them with: pip install 'prismfl[onnx]'.")
    with torch.no_grad(), _attempt("ONNX"):
        program: Any = torch.onnx.export(
            module,
            (torch.zeros(2, *shape),),
            dynamo=True,
            dynamic_shapes=_ANY,
            input_names=[inputs],
            output_names=["logits"],
            verbose=False,
        )
    proto = program.model_proto
    for key, value in notes.items():
        proto.metadata_props.add(key=key, value=value)
    raw: bytes = proto.SerializeToString()
    if util.find_spec("onnxruntime") is not None:
        _compare(module, lambda x: run_onnx(raw, x.numpy()), shape, "ONNX")
    return raw


def run_onnx(raw: bytes, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What onnxruntime answers."""
    session = import_module("onnxruntime").InferenceSession(raw, providers=["CPUExecutionProvider"])
    found: npt.NDArray[Any] = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The module's parameters and buffers by name, each a copy of its own."""
    return {
        name: value.detach().cpu().contiguous(memory_format=torch.contiguous_format).clone()
        for name, value in module.state_dict().items()
    }


def _compare(module: nn.Module, other: Any, shape: tuple[int, ...], what: str) -> None:
    """The file must answer as the module does, for another number of records than it was made with."""
    x = torch.rand(3, *shape, generator=Key.seed(0).torch())
    with torch.no_grad():
        wanted = module(x).numpy()
    gap = float(np.abs(other(x) - wanted).max())
    if not gap <= CLOSE * max(1.0, float(np.abs(wanted).max())):
        raise UserError(f"The {what} file answers otherwise than the model (by {gap:.2g}), so none was written.")


@contextmanager
def _attempt(what: str) -> Iterator[None]:
    """What torch says of a network that it cannot write becomes one line; its warnings are about itself."""
    names = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"The model cannot be written as {what} file ({type(error).__name__}: {reason:.200})."
        ) from None
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
