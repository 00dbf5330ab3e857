"""A folder of patients, hostile: what cannot be read of a record is missing in it, and nothing outside is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.data.faults import Faults
from prismfl.data.files import load_path
from prismfl.data.parts_file import parse_patient_file
from prismfl.data.patient_files import read_patients
from prismfl.errors import CellError, UserError
from tests.data.test_parts_file import CONTENT

DECLARED = parse_patient_file({**CONTENT, "unit": None} | {"unit": "patient_id"}, where="here")


def line(i: int, **changes: Any) -> dict[str, Any]:
    found = {"patient_id": i, "film": "films/a.png", "report": "No effusion.", "age": 50, "diagnosis": "well"}
    return {**found, **changes}


def folder(path: Path, lines: list[Any]) -> Path:
    (path / "films").mkdir(exist_ok=True)
    Image.fromarray(np.full((20, 20), 90, dtype=np.uint8)).save(path / "films" / "a.png")
    (path / "p.jsonl").write_text("".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines))
    return path


def test_a_missing_part_is_a_value(tmp_path: Path) -> None:
    lines = [
        line(1),
        line(2, film=None, report=None),
        line(3, film="films/none.png", report=""),
        line(4, film="p.jsonl", report="x" * 10_000_000),
        line(5, film="../outside.png", report="a\x00b\ud800c", diagnosis="ill"),
    ]
    Image.fromarray(np.full((20, 20), 90, dtype=np.uint8)).save(tmp_path / "outside.png")
    (tmp_path / "in").mkdir()
    found = read_patients(folder(tmp_path / "in", lines), DECLARED, Faults())
    films = DECLARED.parts.images(found.x)
    assert [bool(film.any()) for film in films] == [True, False, False, False, False]
    texts = DECLARED.parts.texts(found.x)
    assert texts[:3] == ["No effusion.", "", ""]
    assert len(texts[3]) == 300
    assert texts[4] == "a b c"
    assert found.x[:, DECLARED.parts.place("table")].all(), "the row is there in all of them"
    assert found.y.tolist() == [0, 0, 0, 0, 1]


def test_a_black_picture_is_not_a_missing_one(tmp_path: Path) -> None:
    folder(tmp_path, [line(1)])
    Image.fromarray(np.zeros((16, 16), dtype=np.uint8)).save(tmp_path / "films" / "a.png")
    assert read_patients(tmp_path, DECLARED, Faults()).x[:, :256].all()


def test_texts_may_lie_in_files_of_their_own(tmp_path: Path) -> None:
    declared = parse_patient_file({**CONTENT, "text": {"files": "report", "bytes": 64}}, where="here")
    folder(tmp_path, [line(1, report="notes/1.txt"), line(2, report="/etc/passwd"), line(3, report="notes/no.txt")])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "1.txt").write_bytes("Ödem".encode("latin-1"))
    found = read_patients(tmp_path, declared, Faults())
    assert declared.parts.texts(found.x) == ["\ufffddem", "", ""]


def test_a_bad_line_is_an_error_for_people_and_a_gap_on_a_site(tmp_path: Path) -> None:
    folder(tmp_path, [line(1), "[1, 2\n", line(3, diagnosis="unknown"), line(4)])
    with pytest.raises(CellError, match="JSON"):
        read_patients(tmp_path, DECLARED, Faults())
    faults = Faults(lenient=True)
    found = read_patients(tmp_path, DECLARED, faults)
    assert len(found.y) == 2
    assert faults.rows == {1, 2}


def test_a_label_in_the_text_is_told_to_its_owner(tmp_path: Path) -> None:
    told = [line(i, report=f"patient is {name}", diagnosis=name) for i, name in enumerate(["well", "ill"] * 5)]
    assert "label itself" in read_patients(folder(tmp_path, told), DECLARED, Faults()).notices[0]
    plain = [line(i, report="no effusion", diagnosis=name) for i, name in enumerate(["well", "ill"] * 5)]
    assert not read_patients(folder(tmp_path, plain), DECLARED, Faults()).notices


def test_one_table_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="got none"):
        read_patients(tmp_path, DECLARED, Faults())


def test_a_folder_is_loaded_by_its_schema(tmp_path: Path) -> None:
    folder(tmp_path, [line(i, diagnosis=["well", "ill"][i % 2]) for i in range(10)])
    schema = tmp_path / "patients.toml"
    schema.write_text(
        'label = "diagnosis"\nclasses = ["well", "ill"]\nunit = "patient_id"\ntrain_size = 10\n'
        '[image]\ncolumn = "film"\nsize = 16\n[text]\ncolumn = "report"\nbytes = 300\n'
    )
    data = load_path(tmp_path, schema=schema)
    assert (data.spec.kind, data.spec.shape, data.spec.unit) == ("patient", (556,), "patient_id")
    assert data.unit_train is not None
    assert data.x_train.shape == (10, 556)
