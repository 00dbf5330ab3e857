"""Word vectors from a file: tensors alone, checked by digest; whatever else a file is, it is one line."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from prismfl.data.texts import text_bytes
from prismfl.errors import UserError
from prismfl.nets.encoders.vectors import load_vectors

VECTORS = np.eye(3, dtype=np.float32)
WORDS = ["Nodule", "effusion", "heart"]


def rows(*texts: str) -> torch.Tensor:
    return torch.from_numpy(text_bytes(texts, 60)).float() / 255


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_text_is_the_mean_of_its_words(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"words{suffix}"
    if suffix == ".npz":
        np.savez(path, vectors=VECTORS, words=np.array(WORDS), trained_on="a test")
    else:
        save_file({"vectors": VECTORS}, path, metadata={"words": "\n".join(WORDS), "trained_on": "a test"})
    found = load_vectors(path, digest=hashlib.sha256(path.read_bytes()).hexdigest())
    assert (found.trained_on, found.pretrained, found.sees) == ("a test", True, "text")
    seen = found.activations(rows("the NODULE and heart", "nothing known", "effusion"))["mean"]
    assert torch.allclose(seen, torch.tensor([[0.7071, 0, 0.7071], [0, 0, 0], [0, 1, 0]]), atol=1e-3)
    with pytest.raises(UserError, match="SHA-256"):
        load_vectors(path, digest="0" * 64)


@pytest.mark.parametrize(
    "arrays",
    [
        {"vectors": VECTORS},
        {"vectors": VECTORS, "words": np.array(WORDS[:2])},
        {"vectors": np.full((3, 2), np.nan), "words": np.array(WORDS)},
        {"vectors": np.zeros(3), "words": np.array(WORDS)},
        {"vectors": np.array([{}, 1, 2], dtype=object), "words": np.array(WORDS)},
    ],
)
def test_another_file_is_one_line(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = tmp_path / "words.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=r"words\.npz"):
        load_vectors(path)
    path.write_bytes(b"not a file of numbers")
    with pytest.raises(UserError, match="word vectors"):
        load_vectors(path)
