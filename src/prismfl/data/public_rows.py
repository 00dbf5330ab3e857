"""Public records of several parts: public images, public sentences and drawn columns, each drawn by itself.

Nothing in them belongs together, so what is learnt of how parts go together comes from the release alone. Sentences are
written by the grammar unless a file of public ones, a line each, is given.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prismfl.data.concepts import VOCABULARIES, vocabulary
from prismfl.data.grammar import public_texts
from prismfl.data.parts import Parts, RecordPart, column_bytes
from prismfl.data.public import Public, load_public
from prismfl.data.schema import Schema
from prismfl.data.texts import Bytes, cleaned, text_bytes
from prismfl.errors import UserError
from prismfl.files.bounded import read_regular

WRITTEN = "written"  # the name of the sentences that the grammar writes
LARGEST = 64 * 2**20  # bytes of a file of public sentences
_COLUMNS, _ORDER = 0xC01A, 0x0D3A


def load_public_rows(
    parts: Parts,
    *,
    images: str | Path,
    text: str | None,
    count: int,
    key_seed: int,
    data_dir: str | Path | None = None,
) -> Public:
    """`count` public records as rows of bytes in [0, 1], and what was done to them on the way."""
    import torch

    given: dict[str, np.ndarray] = {}
    notices: tuple[str, ...] = ()
    for part in parts:
        if part.kind == "image":
            shape = (part.shape[0], part.shape[1], part.shape[2])
            found = load_public(images, shape=shape, count=count, key_seed=key_seed, data_dir=data_dir)
            pixels = (found.images.clamp(0, 1) * 255).round().numpy().astype(np.uint8)
            given["image"], notices = np.maximum(pixels, _dark(pixels)), found.notices
        elif part.kind == "text":
            given["text"] = text_bytes(_sentences(part, text, count, key_seed), part.width)
        else:
            assert parts.schema is not None
            given["table"] = column_bytes(random_columns(parts.schema, count, key_seed))
    rows = parts.joined(given)
    return Public(torch.from_numpy(rows.astype(np.float32) / 255), notices)


def _dark(pixels: Bytes) -> Bytes:
    """One for the first pixel of a picture that is all black: such a picture would count as missing."""
    black = np.zeros_like(pixels)
    black[(pixels == 0).all((1, 2, 3)), 0, 0, 0] = 1
    return black


def _sentences(part: RecordPart, text: str | None, count: int, seed: int) -> list[str]:
    if text is None or text == WRITTEN:
        concepts = part.vocabulary or tuple(c for name in VOCABULARIES for c in vocabulary(name))
        return public_texts(concepts, count, seed=seed, most=part.width)
    lines = public_lines(Path(text), part.width)
    order = np.random.default_rng(np.random.SeedSequence([seed, _ORDER])).permutation(len(lines))
    return [lines[order[i % len(lines)]] for i in range(count)]


def public_lines(path: Path, most: int) -> list[str]:
    """The public sentences of a file, one a line."""
    if not path.is_file():
        raise UserError(f"Expected a text file of public sentences (key: public_text) at {path}, but there is none.")
    lines = read_regular(path, limit=LARGEST).decode("utf-8", "replace").splitlines()
    found = [line for line in (cleaned(line, most) for line in lines) if line]
    if not found:
        raise UserError(f"Expected public sentences, one a line, in {path}, got none.")
    return found


def random_columns(schema: Schema, count: int, seed: int) -> np.ndarray:
    """Encoded rows drawn evenly over the declared domain."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, _COLUMNS]))
    rows = np.zeros((count, schema.width), dtype=np.float32)
    for column, block in schema.blocks():
        if column.is_number:
            rows[:, block.start] = rng.uniform(-1, 1, count)
        elif column.word == "b":
            rows[:, block.start] = rng.choice([-1.0, 1.0], count)
        else:
            rows[np.arange(count), block.start + rng.integers(0, block.stop - block.start, count)] = 1
    return rows
