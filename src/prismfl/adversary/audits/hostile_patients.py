"""Texts and patients of a site under audit: its files, with and without a record that cannot be, and their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from prismfl.data import Spec
from prismfl.data.declared_parts import DIAGNOSES, DRAWN_PATIENTS
from prismfl.data.drawn_patients import draw_patients
from prismfl.data.facts import parted_facts
from prismfl.data.parts_file import parse_patient_file
from prismfl.data.patients_out import patient_cells
from prismfl.data.pictures import save_sheet
from prismfl.data.schema_file import schema_words

KINDS = ("text", "patient")
_BYTES = 400
_TEXT = {"label": "diagnosis", "classes": list(DIAGNOSES), "text": {"column": "text", "bytes": _BYTES}}


def declaration(kind: str) -> dict[str, Any]:
    """What such a site declares of its records."""
    if kind == "text":
        return _TEXT
    assert DRAWN_PATIENTS.schema is not None
    text = {"column": "text", "bytes": _BYTES, "concepts": "chest"}
    return {**schema_words(DRAWN_PATIENTS.schema), "image": {"column": "image", "size": 28}, "text": text}


def facts(kind: str) -> Spec:
    """The same as public facts."""
    return parted_facts(Path("audit"), parse_patient_file(declaration(kind), where="the audit"))


def write_patients(folder: Path, kind: str, count: int, world: str) -> dict[str, Any]:
    """Records of their own as files in `folder`, and the keys of site.toml that say what they are."""
    rows, labels, _ = draw_patients(count)
    names = [DIAGNOSES[label] for label in labels]
    cells = patient_cells(DRAWN_PATIENTS, rows, names, label="diagnosis", origin=None)
    kept = ("text", "diagnosis") if kind == "text" else tuple(cells[0])
    lines = [{name: cell for name, cell in one.items() if name in kept} for one in cells]
    place = folder / "patients"
    place.mkdir()
    (folder / "patients.yaml").write_text(json.dumps(declaration(kind)))  # JSON is YAML
    told = {"data": str(place), "schema_file": str(folder / "patients.yaml")}
    odd = dict(lines[0])
    if world == "label":
        lines.append({**odd, "diagnosis": "nobody"})
    elif world == "out of bounds":
        lines.append({**odd, "text": "\x00\u202e" * 100_000, "age": "1e308"} if kind == "patient" else odd)
    if kind == "patient":
        (place / "images").mkdir()
        for one, film in zip(lines, DRAWN_PATIENTS.images(rows)):
            if one["image"] is not None:
                save_sheet(torch.from_numpy(film).float() / 255, place / one["image"], scale=1)
        text = "".join(json.dumps(one) + "\n" for one in lines)
        (place / "patients.jsonl").write_text(text + ("[" * 100_000 + "\n" if world == "unreadable" else ""))
        return told
    with (place / "patients.csv").open("wb") as file:
        for row in (kept, *([one[name] for name in kept] for one in lines)):
            file.write((",".join(f'"{cell or ""}"' for cell in row) + "\n").encode())
        if world == "unreadable":
            file.write(b'\xff\xfe"\x00,\n')
    return told


def rows(kind: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of records and their classes, the last one full to the brim where all others are empty in one place."""
    made, labels, _ = draw_patients(count)
    given = {"text": made[:, DRAWN_PATIENTS.place("text")][:, :_BYTES]}
    if kind == "patient":
        given |= {"image": DRAWN_PATIENTS.images(made), "table": made[:, DRAWN_PATIENTS.place("table")]}
    parts = facts(kind).parts
    assert parts is not None
    x = torch.from_numpy(parts.joined(given))
    x[-1] = 255
    x[0] = 0
    return x, torch.from_numpy(labels)
