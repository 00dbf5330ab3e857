"""Public records: all parts are there, nothing in them belongs together, and a file of sentences is taken as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismfl.data.declared_parts import DRAWN_PATIENTS, ROW, XRAY_REPORTS
from prismfl.data.parts import Parts
from prismfl.data.public_rows import load_public_rows, random_columns
from prismfl.errors import UserError


def rows(parts: Parts = DRAWN_PATIENTS, text: str | None = None, count: int = 12) -> np.ndarray:
    found = load_public_rows(parts, images="procedural", text=text, count=count, key_seed=3)
    return (found.images.numpy() * 255).round().astype(np.uint8)


def test_every_public_record_has_every_part() -> None:
    found = rows()
    for part in DRAWN_PATIENTS:
        assert found[:, DRAWN_PATIENTS.place(part.kind)].any(1).all(), part.kind
    assert (rows() == found).all()


def test_sentences_of_a_file_are_used_and_none_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "public.txt"
    file.write_text("First line.\n\n  \x00\nSecond\tline.\n")
    texts = XRAY_REPORTS.texts(rows(XRAY_REPORTS, str(file), 6))
    assert set(texts) == {"First line.", "Second line."}
    file.write_text("\n \n")
    with pytest.raises(UserError, match="got none"):
        rows(XRAY_REPORTS, str(file))
    with pytest.raises(UserError, match="public_text"):
        rows(XRAY_REPORTS, str(tmp_path / "nothing.txt"))


def test_drawn_columns_lie_in_the_declared_domain() -> None:
    found = random_columns(ROW, 50, 0)
    assert found.shape == (50, ROW.width)
    assert float(abs(found).max()) <= 1
    assert set(found[:, 1].tolist()) == {-1.0, 1.0}, "a binary column"
