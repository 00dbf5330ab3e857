"""The declared parts of named sets fit what `DATASETS` says of them."""

from __future__ import annotations

import pytest

from prismfl.data import DATASETS

PARTED = [spec for spec in DATASETS.values() if spec.parts is not None]


@pytest.mark.parametrize("spec", PARTED, ids=lambda spec: spec.name)
def test_a_record_is_as_wide_as_its_parts(spec: object) -> None:
    parts = spec.parts  # type: ignore[attr-defined]
    assert spec.shape == (parts.width,)  # type: ignore[attr-defined]
    assert spec.kind == parts.kind  # type: ignore[attr-defined]
    if parts.schema is not None:
        assert parts.schema.classes == spec.classes  # type: ignore[attr-defined]


def test_there_are_texts_and_patients() -> None:
    assert {spec.name: spec.kind for spec in PARTED} == {
        "drawn-patients": "patient",
        "xray-reports": "text",
        "medical-abstracts": "text",
        "pneumonia-reports": "patient",
    }
