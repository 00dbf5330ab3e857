"""Static vectors of words from a file: tensors and a list of words, never code.

An .npz file has `vectors` (words, numbers) and `words` (text); a .safetensors file has `vectors` and, in its metadata,
`words` with a line each. `trained_on` in either says what they were trained on.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prismfl.errors import UserError
from prismfl.nets.encoders.files import read_file
from prismfl.nets.encoders.text import WordVectors
from prismfl.nets.encoders.wrapped import UNSAID, one_line

SUFFIXES = (".npz", ".safetensors")
MOST_WORDS, MOST_NUMBERS = 1_000_000, 4096


def load_vectors(path: Path, *, digest: str | None = None) -> WordVectors:
    """The encoder in a file of word vectors, whose SHA-256 is compared before it is looked into."""
    raw, found = read_file(path, digest)
    try:
        vectors, words, told = _npz(raw) if path.suffix == ".npz" else _safetensors(raw)
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
        raise UserError(
            f"'{path}' is no file of word vectors: expected vectors (words, numbers) and words, a text each."
        ) from None
    sizes = vectors.ndim == 2 and 1 <= len(vectors) <= MOST_WORDS and 1 <= vectors.shape[1] <= MOST_NUMBERS
    if not sizes or len(words) != len(vectors) or not np.isfinite(vectors).all():
        raise UserError(
            f"Expected a finite vector of 1 to {MOST_NUMBERS} numbers for each of the words in '{path}', got the shape "
            f"{vectors.shape} and {len(words)} words."
        )
    known = [word.casefold() for word in words]
    return WordVectors(path.name, vectors, known, digest=found, trained_on=one_line(told) or UNSAID)


def _npz(raw: bytes) -> tuple[npt.NDArray[np.float32], list[str], str]:
    with np.load(io.BytesIO(raw), allow_pickle=False) as file:
        told = str(file["trained_on"]) if "trained_on" in file.files else ""
        return file["vectors"].astype(np.float32), [str(word) for word in file["words"].tolist()], told


def _safetensors(raw: bytes) -> tuple[npt.NDArray[np.float32], list[str], str]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        vectors = load(raw)["vectors"].astype(np.float32)
    except SafetensorError:
        raise ValueError("not safetensors") from None
    size = int.from_bytes(raw[:8], "little")
    told = json.loads(raw[8 : 8 + size]).get("__metadata__", {})
    return vectors, str(told["words"]).splitlines(), str(told.get("trained_on", ""))
