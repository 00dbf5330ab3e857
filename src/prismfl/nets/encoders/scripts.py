"""A user's own encoder from a TorchScript file. Such a file is code of its author, so only the user's own commands come
here; no request, no site and nothing that reads a folder somebody sent does."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.files import read_file
from prismfl.nets.encoders.wrapped import Wrapped

SUFFIXES = (".pt", ".ts")


class Scripted(Wrapped):
    """A TorchScript module; its digest is that of its file."""

    def __init__(self, module: torch.nn.Module, name: str, digest: str) -> None:
        super().__init__(module, name)
        self.file_digest = digest

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return self.file_digest


def load_script(path: Path, *, digest: str | None = None) -> Scripted:
    """The encoder in a TorchScript file, whose SHA-256 is compared before it is looked into."""
    raw, found = read_file(path, digest)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module = torch.jit.load(io.BytesIO(raw), map_location="cpu")  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(f"'{path}' is not a TorchScript file that torch can load: {reason:.200}.") from None
    return Scripted(module, path.name, found)
