"""A site with a folder of patients of its own: read once, answered from what was read, and facts that are its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismfl.adversary.audits.hostile_site import watching
from prismfl.core.payloads import JsonDict
from prismfl.data.facts import parted_facts
from prismfl.data.parts_file import read_patient_file
from prismfl.errors import UserError
from prismfl.runs.config import RunConfig
from prismfl.runs.description import describe, digest_of
from prismfl.site import data as site_data
from prismfl.site.config import SiteConfig, as_toml
from prismfl.site.office import Office
from prismfl.transport.post import Answer, Request

SCHEMA = """label = "diagnosis"
classes = ["well", "ill"]
unit = "patient_id"
train_size = 12
[image]
column = "film"
size = 16
[text]
column = "report"
bytes = 200
concepts = "chest"
[[columns]]
name = "age"
min = 0
max = 100
"""
TINY: dict[str, Any] = {"rank": 12, "covariance": 12, "images": 2, "steps": 1, "sigma": 2.0}


def patients(folder: Path, *, extra: tuple[str, ...] = ()) -> Path:
    (folder / "films").mkdir(parents=True)
    lines = []
    for i in range(12):
        Image.fromarray(np.full((20, 20), 40 + 10 * i, dtype=np.uint8)).save(folder / "films" / f"{i}.png")
        lines.append(
            json.dumps(
                {
                    "patient_id": i // 2,
                    "film": f"films/{i}.png",
                    "report": ["No effusion.", "There is a nodule."][i % 2],
                    "age": 30 + i,
                    "diagnosis": ["well", "ill"][i % 2],
                }
            )
        )
    (folder / "p.jsonl").write_text("\n".join([*lines, *extra]) + "\n")
    return folder


def site(root: Path, *, schema: str = SCHEMA, data: str | None = None, **changes: Any) -> SiteConfig:
    root.mkdir(exist_ok=True)
    (root / "patients.toml").write_text(schema)
    own = data or str(patients(root / "in"))
    values: dict[str, Any] = {"name": "north", "data": own, "schema_file": str(root / "patients.toml"), "cap": 50.0}
    return SiteConfig(**{**values, "methods": ["prism"], "releases": ["statistics"], **changes})


def office(root: Path, **changes: Any) -> Office:
    config = site(root, ledger=str(root / "ledger"), **changes)
    (root / "site").mkdir()
    (root / "site" / "site.toml").write_text(as_toml(config))
    found = Office.open(root / "site")
    found.preload()
    return found


def told(schema: Path, **changes: Any) -> JsonDict:
    facts = parted_facts(Path("visits"), read_patient_file(schema), records=12)
    values: dict[str, Any] = {"method": "prism", "data": "visits", "records": 12, "public_count": 60, "settings": TINY}
    return describe(RunConfig(**{**values, "tuning": "fixed", **changes}), facts, ["north"], run="audit")


def asked(found: Office, description: JsonDict) -> Answer:
    return found.answer(Request("hello", description, 0, 0.0, b"", "", ""))


def test_patients_are_read_once_and_answered_from_what_was_kept(tmp_path: Path) -> None:
    config = site(tmp_path)
    data = site_data.prepare(tmp_path / "kept", config)
    assert data.spec.kind == "patient"
    assert data.spec.unit == "patient_id"
    assert len(data.records) == 12
    with watching([Path(config.data)]) as seen:
        again = site_data.load(tmp_path / "kept", config)
    assert seen == [], "a request must open no file of the site's data"
    assert again.records.x.equal(data.records.x)
    assert site_data.stale(tmp_path / "kept", config) is None
    (Path(config.data) / "films" / "3.png").unlink()
    assert site_data.stale(tmp_path / "kept", config) is not None


def test_a_table_whose_cells_name_files_is_declared_by_its_folder(tmp_path: Path) -> None:
    config = site(tmp_path, data=str(patients(tmp_path / "in") / "p.jsonl"))
    with pytest.raises(UserError, match="folder"):
        site_data.facts(config)


def test_a_site_answers_a_run_on_its_parts(tmp_path: Path) -> None:
    found = office(tmp_path)
    assert asked(found, told(tmp_path / "patients.toml")).kind == "ready"


@pytest.mark.parametrize("what", ["bytes", "concepts", "language", "min", "no parts", "an extra part", "an extra key"])
def test_parts_that_a_server_names_are_not_taken(tmp_path: Path, what: str) -> None:
    found, honest = office(tmp_path), told(tmp_path / "patients.toml")
    parts = json.loads(json.dumps(honest["spec"]["parts"]))
    if what == "bytes":  # the same width in another place
        parts["parts"][0]["shape"], parts["parts"][1]["shape"] = [1, 8, 8], [392]
    elif what in ("concepts", "language"):
        parts["parts"][1][what] = {"concepts": "medicine", "language": "de"}[what]
    elif what == "min":
        parts["schema"]["columns"][0]["min"] = 29.5
    elif what == "an extra part":
        parts["parts"].append({"name": "more", "kind": "text", "shape": [8], "language": "", "concepts": ""})
    elif what == "an extra key":
        parts["surprise"] = "/etc/passwd"
    spec = {**honest["spec"], "parts": parts}
    if what == "no parts":
        del spec["parts"]
    lie = {**honest, "spec": spec}
    lie["digest"] = digest_of(lie)
    with watching([Path(found.config.data)]) as seen:
        assert asked(found, lie).kind == "code"
    assert seen == []
    assert not (tmp_path / "ledger").exists()


def test_parts_are_not_named_where_there_are_none(tmp_path: Path) -> None:
    honest = told_of_digits()
    lie = {**honest, "spec": {**honest["spec"], "parts": {"parts": [], "schema": None}}}
    lie["digest"] = digest_of(lie)
    (tmp_path / "site").mkdir()
    values: dict[str, Any] = {"name": "north", "data": "digits", "methods": ["prism"], "releases": ["statistics"]}
    (tmp_path / "site" / "site.toml").write_text(as_toml(SiteConfig(**values, cap=50.0)))
    found = Office.open(tmp_path / "site")
    assert asked(found, honest).kind == "ready"
    assert asked(found, lie).kind == "code"


def told_of_digits() -> JsonDict:
    from prismfl.data import DATASETS

    values: dict[str, Any] = {"method": "prism", "data": "digits", "public_count": 60, "tuning": "fixed"}
    settings = {"networks": 2, "atoms": 6, "rank": 12, "covariance": 8, "sigma": 2.0}
    return describe(RunConfig(**values, settings=settings), replace(DATASETS["digits"]), ["north"], run="audit")


def test_the_owner_is_told_that_the_label_stands_in_the_text(tmp_path: Path) -> None:
    from prismfl.site.making import reread

    config = site(tmp_path)
    table = Path(config.data) / "p.jsonl"
    table.write_text(
        table.read_text().replace("No effusion.", "well, no effusion").replace("There is a nodule", "ill, a nodule")
    )
    said: list[str] = []
    reread(tmp_path / "kept", config, said.append, always=True)
    assert any("name of their class" in line for line in said)


def test_a_site_is_made_of_a_folder_of_patients(tmp_path: Path) -> None:
    """Its folders of films were once taken for classes."""
    from prismfl.site.making import make_site

    make_site(tmp_path / "site", site(tmp_path), ca=None, say=lambda _: None)
    found = Office.open(tmp_path / "site")
    assert found.config.classes is None
    assert found.config.image_size is None
    assert len(site_data.load(tmp_path / "site", found.config).records) == 12
