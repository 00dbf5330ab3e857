"""Records of several parts as rows of bytes: what is declared, where it lies, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

from prismfl.data.declared_parts import DRAWN_PATIENTS, FILM, REPORT, ROW, XRAY_REPORTS
from prismfl.data.parts import Parts, RecordPart, byte_columns, column_bytes
from prismfl.data.texts import text_bytes
from prismfl.errors import UserError


def test_each_part_lies_behind_the_one_before() -> None:
    places = [DRAWN_PATIENTS.place(part.kind) for part in DRAWN_PATIENTS]
    assert [place.start for place in places] == [0, 784, 1784]
    assert places[-1].stop == DRAWN_PATIENTS.width == 784 + 1000 + ROW.width
    assert (DRAWN_PATIENTS.kind, XRAY_REPORTS.kind) == ("patient", "text")


def test_parts_come_back_as_they_went_in() -> None:
    rng = np.random.default_rng(0)
    films = rng.integers(1, 256, (3, 1, 28, 28)).astype(np.uint8)
    texts = text_bytes(["a report", "", "another"], 1000)
    rows = DRAWN_PATIENTS.joined({"image": films, "text": texts})
    assert (DRAWN_PATIENTS.images(rows) == films).all()
    assert DRAWN_PATIENTS.texts(rows) == ["a report", "", "another"]
    assert not rows[:, DRAWN_PATIENTS.place("table")].any(), "a part that is not given is missing"


def test_columns_keep_their_ends_and_their_middle_and_are_never_zero() -> None:
    values = np.array([[-1.0, 0.0, 1.0, 0.3, -7.0, np.nan, np.inf]])
    found = column_bytes(values)
    assert (found > 0).all(), "a zero byte would say that the part is missing"
    assert np.allclose(byte_columns(found), [[-1, 0, 1, 0.3, -1, 0, 1]], atol=0.5 / 127)
    assert byte_columns(found)[0, :3].tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("kind", "shape", "words"),
    [
        ("image", (2, 28, 28), "1 or 3 channels"),
        ("image", (1, 4, 28), "at least 8"),
        ("image", (1, 28, 1000), "at most 256"),
        ("text", (7,), "8 to 20,000"),
        ("text", (10_000_000,), "8 to 20,000"),
        ("sound", (10,), "image, text, table"),
    ],
)
def test_a_part_that_cannot_be_is_refused(kind: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        RecordPart("x", kind, shape)  # type: ignore[arg-type]


def test_a_record_has_each_kind_once_and_its_table_a_schema() -> None:
    with pytest.raises(UserError, match="at most one"):
        Parts((REPORT, REPORT))
    with pytest.raises(UserError, match="belong together"):
        Parts((FILM, RecordPart("row", "table", (3,))))
    with pytest.raises(UserError, match="vocabulary"):
        RecordPart("text", "text", (100,), concepts="secrets")
