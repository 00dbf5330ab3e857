"""Own data from end to end: three sites with files of their own, over TLS with real processes, and at the end the
digest of the simulation. Pictures in folders and archives, rows in CSV and Parquet; grey stays grey."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("flwr")
from prismfl.data.declared_parts import DIAGNOSES, DRAWN_PATIENTS
from prismfl.data.drawn_patients import draw_patients
from prismfl.data.patients_out import write_patients
from prismfl.data.schema_file import schema_words
from prismfl.files.written import toml_value
from prismfl.methods import METHODS
from prismfl.privacy.ledger.book import Ledger
from prismfl.runs.description import job_of
from prismfl.runs.directory import RunDirectory
from prismfl.runs.result import state_digest
from prismfl.site.egress import EgressLog
from prismfl.transport import in_process as local
from prismfl.transport.faults import faults
from tests.site.folders import NAMES, make_site
from tests.site.test_processes import PATIENCE, Federation

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200), pytest.mark.xdist_group("processes")]
CLASSES, SIDE, EACH = ["ill", "well"], 12, 16
PICTURES = {"classes": CLASSES, "image_size": SIDE, "channels": 1}
TABLE = "dp-marginals" if find_spec("mbi") is not None else "3dgl"
SCHEMA = """label = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
min = 0
max = 100
integer = true
[[columns]]
name = "ward"
type = "categorical"
categories = ["a", "b", "c"]
"""


def pictures(root: Path, place: int) -> dict[str, Any]:
    """What a site's site.toml says of its grey pictures: an archive at one site, class folders at the others."""
    rng = np.random.default_rng(place)
    y = np.arange(2 * EACH) % 2
    x = (rng.integers(0, 120, (len(y), SIDE, SIDE)) + 120 * y[:, None, None]).astype(np.uint8)
    own = root / f"pictures-{place}"
    if place == 1:
        np.savez(own.with_suffix(".npz"), x=x, y=y)
        return {**PICTURES, "data": str(own.with_suffix(".npz")), "bounds": (0.0, 255.0)}
    for i, (picture, label) in enumerate(zip(x, y)):
        (own / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(own / CLASSES[label] / f"{i:03}.png")
    return {**PICTURES, "data": str(own)}


def rows(root: Path, place: int) -> dict[str, Any]:
    """What a site's site.toml says of its table: Parquet at one site where that can be written, CSV at the others."""
    rng = np.random.default_rng(place)
    frame = {"age": rng.integers(0, 120, 60).tolist(), "ward": rng.choice(["a", "b", "c"], 60).tolist()}
    frame |= {"ill": [("no", "yes")[age > 60] for age in frame["age"]]}
    (root / "schema.toml").write_text(SCHEMA)
    own = root / f"rows-{place}.csv"
    if place == 1 and find_spec("pyarrow") is not None:
        import pyarrow
        from pyarrow import parquet

        own = own.with_suffix(".parquet")
        parquet.write_table(pyarrow.table(frame), own)
    else:
        lines = [",".join(map(str, row)) for row in zip(*frame.values())]
        own.write_text("\n".join([",".join(frame), *lines]) + "\n")
    return {"data": str(own), "schema_file": str(root / "schema.toml")}


class OwnFederation(Federation):
    """A federation whose sites hold files of their own and allow these methods."""

    def __init__(self, root: Path, data: Callable[[Path, int], dict[str, Any]], methods: list[str]) -> None:
        super().__init__(root)
        kinds = sorted({kind.kind for name in methods for kind in METHODS[name].leaves.values()})
        self.sites = {
            name: {**data(root, place), "part": None, "parts": 1, "methods": methods, "releases": kinds}
            for place, name in enumerate(NAMES)
        }
        for name in NAMES:
            make_site(root, name, ledger=str(root / f"ledger of {name}"), **self.sites[name])
            self.join(name)

    def run(self, **told: Any) -> RunDirectory:
        """A run by `prismfl server start` to its end."""
        method = METHODS[told["method"]]
        settings = {**method.tiny, "sigma": 2.0, **told.pop("settings", {})}
        text = "".join(f"{key} = {toml_value(value)}\n" for key, value in told.items())
        text += "[settings]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in settings.items())
        tomllib.loads(text)
        (self.root / "run.toml").write_text(text)
        server = self.prismfl("server", "start", "server", "run.toml")
        self.wait(f"the end of {method.name}", lambda: server.poll() is not None, PATIENCE)
        assert server.returncode == 0, self.logs()
        assert {fault.code for fault in faults(self.directory())} <= {"missed-the-end"}  # a busy machine's
        return self.directory()

    def simulated(self, directory: RunDirectory, root: Path) -> str:
        """The digest of the same run on the same files, in this process."""
        description = directory.read_json("federation.json")["description"]
        job = job_of(description)
        offices = [make_site(root, name, ledger=str(root / name), **self.sites[name]) for name in NAMES]
        hosts = [office._host(job, description) for office in offices]
        outcome = local.run(job, hosts, directory=RunDirectory.create(root / "run", {}, {}))
        return state_digest(outcome.state)

    def charges(self) -> list[int]:
        """Charges of each site on its ledger, which verifies."""
        found = []
        for name in NAMES:
            assert EgressLog(self.root / name).verify() > 0
            with Ledger.open(self.root / f"ledger of {name}" / "ledger.sqlite", create=False) as ledger:
                ledger.verify()
                found.append(len(ledger.charges()))
        return found


def federation(data: Callable[[Path, int], dict[str, Any]], *methods: str) -> Any:
    """A fixture: sites that stay while several methods run."""

    @pytest.fixture(scope="module")
    def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnFederation]:
        found = OwnFederation(tmp_path_factory.mktemp("own"), data, list(methods))
        yield found
        found.end()

    return made


def people(root: Path, place: int) -> dict[str, Any]:
    """What a site's site.toml says of its folder of patients: a film, a report and a row of each."""
    made, labels, _ = draw_patients(24, seed=place)
    names, own = [DIAGNOSES[label] for label in labels], root / f"patients-{place}"
    write_patients(own, DRAWN_PATIENTS, made, names, label="diagnosis")
    (own / "patients.parquet").unlink(missing_ok=True)
    assert DRAWN_PATIENTS.schema is not None
    words = {**schema_words(DRAWN_PATIENTS.schema), "image": {}, "text": {"concepts": "chest"}, "train_size": 24}
    (root / "patients.yaml").write_text(json.dumps(words))  # JSON is YAML
    return {"data": str(own), "schema_file": str(root / "patients.yaml")}


of_people = federation(people, "prism")
of_pictures = federation(pictures, "prism", "fedlap-dp")
of_tables = federation(rows, TABLE)


@pytest.mark.parametrize("method", ["prism", "fedlap-dp"])
def test_grey_pictures_of_three_sites(of_pictures: OwnFederation, method: str, tmp_path: Path) -> None:
    before = of_pictures.charges() if method == "fedlap-dp" else [0, 0, 0]
    directory = of_pictures.run(method=method, data="scans", model="convnet:4", records=20, seed=0, **PICTURES)
    told = directory.read_json("result.json")
    assert told["digest"] == of_pictures.simulated(directory, tmp_path)
    assert directory.read_json("task.json")["shape"] == [1, SIDE, SIDE]
    rounds = told["rounds"]
    assert of_pictures.charges() == [charged + rounds for charged in before]


def test_tables_of_three_sites(of_tables: OwnFederation, tmp_path: Path) -> None:
    schema = str(of_tables.root / "schema.toml")
    directory = of_tables.run(method=TABLE, data="visits", records=40, seed=0, schema_file=schema)
    told = directory.read_json("result.json")
    assert told["digest"] == of_tables.simulated(directory, tmp_path)
    head = (directory.path / "gen" / "synthetic.csv").read_text().splitlines()[0]
    assert head.split(",") == ["age", "ward", "ill"]
    assert of_tables.charges() == [told["rounds"]] * 3


def test_patients_of_three_sites(of_people: OwnFederation, tmp_path: Path) -> None:
    told = {"schema_file": str(of_people.root / "patients.yaml"), "settings": {"rank": 12, "covariance": 12}}
    directory = of_people.run(
        method="prism", data="visits", records=20, seed=0, public_count=80, tuning="fixed", **told
    )
    assert directory.read_json("result.json")["digest"] == of_people.simulated(directory, tmp_path)
    lines = (directory.path / "gen" / "patients.jsonl").read_text().splitlines()
    assert {json.loads(line)["diagnosis"] for line in lines} == set(DIAGNOSES)
    assert of_people.charges() == [1] * 3
