"""`prismfl synth` on a folder of patients: a folder comes out, with a certificate, and the release is charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.synth.patients import synth_patients
from tests.data.test_patient_files import folder, line

SCHEMA = """label = "diagnosis"
classes = ["well", "ill"]
unit = "patient_id"
train_size = 30
[text]
column = "report"
bytes = 300
concepts = "chest"
[[columns]]
name = "age"
type = "numeric"
min = 0
max = 100
integer = true
"""


def test_patients_in_patients_out(tmp_path: Path) -> None:
    told = ["No effusion.", "There is a nodule."]
    lines = [line(i // 2, report=told[i % 2], diagnosis=["well", "ill"][i % 2]) for i in range(30)]
    (tmp_path / "in").mkdir()
    folder(tmp_path / "in", lines)
    (tmp_path / "patients.toml").write_text(SCHEMA)
    options: dict[str, Any] = {
        "schema": tmp_path / "patients.toml",
        "epsilon": 1.0,
        "delta": 1e-3,
        "seed": 0,
        "rows": 7,
    }
    out = tmp_path / "out"
    kept: dict[str, Any] = {"ledger": tmp_path / "ledger", "public_count": 150}
    found = synth_patients(str(tmp_path / "in"), out=out, sets=["rank=16", "covariance=16"], **options, **kept)
    made = [json.loads(one) for one in (out / "patients.jsonl").read_text().splitlines()]
    assert len(made) == found["patients"] == 7
    assert {one["diagnosis"] for one in made} == {"well", "ill"}
    assert all(one["text"] is None or one["text_origin"].startswith("written") for one in made)
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["unit"] == "patient_id"
    assert certificate["epsilon"] <= 1.0
    assert [part["kind"] for part in certificate["parts"]] == ["text", "table"]
    with pytest.raises(UserError, match="not an empty folder"):
        synth_patients(str(tmp_path / "in"), out=out, **options, **kept)
