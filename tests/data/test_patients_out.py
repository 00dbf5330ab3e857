"""Synthetic patients as a folder: others read it, each line says where it comes from, and ours reads it back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismfl.data.declared_parts import DRAWN_PATIENTS
from prismfl.data.drawn_patients import draw_patients
from prismfl.data.patients_out import write_patients


def test_a_folder_that_others_read(tmp_path: Path) -> None:
    rows, labels, _ = draw_patients(30)
    rows[0, DRAWN_PATIENTS.place("image")] = 0
    rows[1, DRAWN_PATIENTS.place("text")] = 0
    names = [str(label) for label in labels]
    write_patients(tmp_path, DRAWN_PATIENTS, rows, names, label="diagnosis", origin="written")
    lines = [json.loads(line) for line in (tmp_path / "patients.jsonl").read_text().splitlines()]
    assert len(lines) == 30
    assert all(line["synthetic"] and line["diagnosis"] == name for line, name in zip(lines, names))
    assert lines[0]["image"] is None
    assert (lines[1]["text"], lines[1]["text_origin"]) == (None, None)
    assert lines[2]["text_origin"] == "written"
    assert 18 <= lines[2]["age"] <= 95
    with Image.open(tmp_path / lines[2]["image"]) as film:
        assert (np.asarray(film) == DRAWN_PATIENTS.images(rows)[2, 0]).all()
    with Image.open(tmp_path / "sample.png") as page:
        assert page.size[0] > 1000
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "patients.parquet")
    assert table.column("text").to_pylist() == [line["text"] for line in lines]
    assert table.num_columns == len(lines[0])
