"""A folder of patients, hostile: what cannot be read of a record is missing in it, and nothing outside is opened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.data.faults import Faults
from prismfl.data.files import load_path
from prismfl.data.parts_file import parse_patient_file
from prismfl.data.patient_files import MOST_LINE, read_patients
from prismfl.data.prints import picture_print
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


def test_a_text_cell_names_no_file_that_holds_other_records(tmp_path: Path) -> None:
    """The table itself as somebody's report: then every other record would move that record's row as well."""
    declared = parse_patient_file({**CONTENT, "text": {"files": "report", "bytes": 64}}, where="here")
    (tmp_path / "films").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    place = tmp_path / "in"
    place.mkdir()
    (place / "link.txt").symlink_to(tmp_path / "secret.txt")
    (place / "table.txt").symlink_to(place / "p.jsonl")
    os.mkfifo(place / "pipe.txt")
    odd = [
        "p.jsonl",
        "link.txt",
        "table.txt",
        "pipe.txt",
        "..",
        ".",
        "/",
        "a/..",
        ".txt",
        "x" * 900 + ".txt",
        "\x00.txt",
        7,
    ]
    folder(place, [line(i, report=cell) for i, cell in enumerate(odd)])
    assert declared.parts.texts(read_patients(place, declared, Faults()).x) == [""] * len(odd)


def test_texts_may_lie_beside_the_pictures(tmp_path: Path) -> None:
    declared = parse_patient_file({**CONTENT, "text": {"files": "film", "bytes": 64}}, where="here")
    folder(tmp_path, [line(1), line(2, film=None)])
    (tmp_path / "films" / "a.txt").write_text("No effusion.")
    assert declared.parts.texts(read_patients(tmp_path, declared, Faults()).x) == ["No effusion.", ""]


def test_odd_pictures_are_missing(tmp_path: Path) -> None:
    folder(tmp_path, [line(i, film=f"films/{name}") for i, name in enumerate(["moves.png", "huge.bmp", "films", ""])])
    frames = [Image.fromarray(np.full((20, 20), v, dtype=np.uint8)) for v in (10, 200)]
    frames[0].save(tmp_path / "films" / "moves.png", save_all=True, append_images=frames[1:])
    head = b"BM" + b"\0" * 12 + (40).to_bytes(4, "little") + (60_000).to_bytes(4, "little") * 2
    (tmp_path / "films" / "huge.bmp").write_bytes(
        head + (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + b"\0" * 40
    )
    films = DECLARED.parts.images(read_patients(tmp_path, DECLARED, Faults()).x)
    assert not films.any()


def prints_of(found: Any) -> set[bytes]:
    return {*found.prints, *(one for other in found.more for one in other)}


def test_what_one_record_has_besides_changes_no_print_of_another(tmp_path: Path) -> None:
    for name, more in (("a", {}), ("b", {"note": "x", "phone": 1})):
        (tmp_path / name).mkdir()
        folder(tmp_path / name, [line(1), line(2, **more)])
    plain, odd = (read_patients(tmp_path / name, DECLARED, Faults(lenient=True)) for name in "ab")
    assert len(plain.x) == len(odd.x) == 2
    for k in range(len(plain.more)):
        assert plain.more[k][0] == odd.more[k][0]


def test_the_ledger_knows_a_film_and_a_long_report_wherever_they_stand(tmp_path: Path) -> None:
    report = "There is a small pleural effusion on the right. The heart is normal in size."
    folder(tmp_path, [line(1, report=report)])
    film = picture_print(np.full((20, 20), 90, dtype=np.uint8))
    inline = prints_of(read_patients(tmp_path, DECLARED, Faults()))
    assert film in inline
    (tmp_path / "p.jsonl").write_text(json.dumps(line(7, report="r.txt", age=51, film=None)) + "\n")
    (tmp_path / "r.txt").write_text(f"  {report}\r\n")
    declared = parse_patient_file({**CONTENT, "text": {"files": "report", "bytes": 99}}, where="here")
    assert prints_of(read_patients(tmp_path, declared, Faults())) & inline
    (tmp_path / "p.jsonl").write_text(json.dumps(line(8, report="Normal.", film=None)) + "\n")
    short = prints_of(read_patients(tmp_path, DECLARED, Faults()))
    (tmp_path / "p.jsonl").write_text(json.dumps(line(9, report="Normal.", age=49, film=None)) + "\n")
    assert not short & prints_of(read_patients(tmp_path, DECLARED, Faults())), "a word that many have is nobody's"


def test_no_line_stops_a_site(tmp_path: Path) -> None:
    """Ten thousand keys, a line without an end, brackets in brackets: each is one record that is left out."""
    keys = json.dumps({**line(2), **{f"k{i}": 0 for i in range(10_001)}}) + "\n"
    long = json.dumps(line(3, report="x" * MOST_LINE)) + "\n"
    whole = Faults(lenient=True)
    folder(tmp_path, [line(1), keys, long, "[" * 200_000 + "\n", '{"age": ' + "9" * 5000 + "}\n", "\xff\n", line(5)])
    assert len(read_patients(tmp_path, DECLARED, whole).y) == 2
    assert whole.rows == {1, 2, 3, 4, 5}


def test_a_part_that_nobody_has_is_missing_at_a_site_and_a_mistake_elsewhere(tmp_path: Path) -> None:
    bare = {key: value for key, value in line(1).items() if key not in ("film", "report")}
    folder(tmp_path, [bare])
    found = read_patients(tmp_path, DECLARED, Faults(lenient=True))
    assert len(found.y) == 1
    with pytest.raises(UserError, match="film"):
        read_patients(tmp_path, DECLARED, Faults())
