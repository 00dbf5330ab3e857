"""The declaration of a folder of patients, and parts in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.data.declared_parts import DRAWN_PATIENTS, XRAY_REPORTS
from prismfl.data.parts_file import is_parted, parse_parts, parse_patient_file, parts_words, read_patient_file
from prismfl.errors import UserError

CONTENT: dict[str, Any] = {
    "label": "diagnosis",
    "classes": ["well", "ill"],
    "unit": "patient_id",
    "train_size": 100,
    "image": {"column": "film", "size": 16},
    "text": {"column": "report", "bytes": 300, "concepts": "chest"},
    "columns": [{"name": "age", "type": "numeric", "min": 0, "max": 100}],
}


def test_a_file_says_what_each_part_is_and_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "patients.toml"
    file.write_text('label = "y"\nclasses = ["a", "b"]\n[image]\nsize = 8\n[text]\nfiles = "note"\nbytes = 64\n')
    found = read_patient_file(file)
    assert is_parted(file)
    assert [part.shape for part in found.parts] == [(1, 8, 8), (64,)]
    assert (found.image, found.text, found.text_files, found.parts.schema) == ("image", "note", True, None)
    file.write_text('label = "y"\nclasses = ["a", "b"]\n')
    assert not is_parted(file)
    assert not is_parted(None)


def test_columns_are_declared_as_in_a_table() -> None:
    found = parse_patient_file(CONTENT, where="here")
    assert [part.kind for part in found.parts] == ["image", "text", "table"]
    assert (found.label, found.classes, found.unit, found.train_size) == (
        "diagnosis",
        ("well", "ill"),
        "patient_id",
        100,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": None}, "label"),
        ({"text": {"colunm": "x"}}, "known: column"),
        ({"text": {"bytes": "many"}}, "whole number"),
        ({"text": {"bytes": 10**9}}, "8 to 20,000"),
        ({"image": {"size": 5000}}, "at most 256"),
        ({"image": "film"}, "table of keys"),
        ({"text": {"concepts": "cheese"}}, "vocabulary"),
    ],
)
def test_what_cannot_be_is_one_line(changes: dict[str, Any], words: str) -> None:
    content = {key: value for key, value in {**CONTENT, **changes}.items() if value is not None}
    with pytest.raises(UserError, match=words):
        parse_patient_file(content, where="here")


@pytest.mark.parametrize("parts", [DRAWN_PATIENTS, XRAY_REPORTS], ids=["patients", "reports"])
def test_parts_come_back_from_their_words(parts: Any) -> None:
    found = parse_parts(parts_words(parts), where="here")
    assert found.parts == parts.parts
    assert found.width == parts.width


@pytest.mark.parametrize(
    "content", [None, [], {"parts": []}, {"parts": [{"shape": [-1]}]}, {"parts": [{"shape": "x"}]}]
)
def test_words_of_somebody_elses_are_checked(content: object) -> None:
    with pytest.raises(UserError, match="here"):
        parse_parts(content, where="here")
