"""The sharing edition of everything: nothing computed from own records without a charge is in any byte of it."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from typer.testing import CliRunner

from prismfl import experiment
from prismfl.cli import app
from prismfl.config import RunConfig
from prismfl.metrics.membership import measure

SECRETS = {
    "folder of the data": "home-of-mallory",
    "accuracy": "12.3456789",
    "accuracy, as a page writes it": r"(?<![\d.])12\.3[45]?(?!\d)",
    "worst accuracy": r"(?<![\d.])9\.876",
    "seconds": "98765",
    "accuracy of a round": "45.678",
    "accuracy of a round, as a chart writes it": r"(?<![\d.])45\.[67](?!\d)",
    "AUC": r"0\.8765|(?<![\d.])0\.877(?!\d)",
    "name in a result of an attack": "attacker-saw-it",
    "lower bound of an audit": r"3\.1415|(?<![\d.])3\.14(?!\d)",
    "counts of an unknown section": "777333",
    "environment": "host-of-mallory",
    "text in a picture": "camera-of-mallory",
    "time of a release": r"T\d\d:\d\d:\d\d\.\d",
    "seed": "31415926",
}
"""What the run folder holds and no sharing output may: a pattern for each."""

SCHEMA = {
    "columns": [{"name": "age", "min": 0, "max": 100}, {"name": "weight", "min": 0, "max": 200}],
    "label": "ill",
    "classes": ["no", "yes"],
}


def own_run(folder: Path) -> Path:
    """A finished run on own data, its private figures replaced by ones that can be recognised."""
    home = folder / "home-of-mallory"
    home.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(0, 100)},{rng.integers(40, 150)},{('no', 'yes')[i % 2]}" for i in range(160)]
    (home / "patients.csv").write_text("\n".join(["age,weight,ill", *rows]) + "\n")
    (home / "schema.json").write_text(json.dumps(SCHEMA))
    run = folder / "own"
    experiment.run(
        RunConfig(
            method="dp-fedavg", data=str(home / "patients.csv"), schema_file=str(home / "schema.json"),
            model="mlp:4", sites=2, records=60, epsilon=2.0, seed=31415926,
            ledger=str(home / "ledgers"), out=str(run), settings={"rounds": 2, "steps": 2, "batch": 16},
        )
    )  # fmt: skip
    mark(run)
    return run


def mark(run: Path) -> None:
    change(run / "result.json", accuracy=12.3456789, accuracy_min=9.87654321, seconds=98765.4321, held_out=777333,
           run_dir=str(run.parent / "home-of-mallory"), own_data=True)  # fmt: skip
    change(run / "config.json", data_dir=str(run.parent / "home-of-mallory"), out=str(run.parent / "home-of-mallory"))
    change(run / "environment.json", hostname="host-of-mallory")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = [{**row, "accuracy": 45.678901234, "seconds": 98765.4, "test_records": 777333} for row in lines]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    rng = np.random.default_rng(0)
    scores = measure(rng.normal(0.1, 1, 300), rng.normal(0, 1, 300)).as_dict()
    loss = {"attack": "loss", **scores, "auc": 0.87654321, "within_bound": True, "words": "attacker-saw-it"}
    audit = {"audit": "one run", "claimed": 2.0, "lower": 3.14159265, "control": 5.0, "passed": True}
    for name, value in (("attacks/loss", loss), ("attacks/dlg", {"words": "attacker-saw-it"}), ("audits/one", audit)):
        (run / name).parent.mkdir(exist_ok=True)
        (run / f"{name}.json").write_text(json.dumps(value))
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "camera-of-mallory")
    (run / "gen").mkdir(exist_ok=True)
    Image.new("L", (40, 40), 90).save(run / "gen" / "sample.png", pnginfo=text)


def change(file: Path, **more: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run(tmp_path_factory.mktemp("sharing"))


def benchmark_run(folder: Path, **changes: Any) -> Path:
    values = {"method": "dp-fedavg", "epsilon": 2.0, "data": "digits", "model": "logreg", "sites": 2, **changes}
    experiment.run(RunConfig(**values, out=str(folder), settings={"rounds": 2, "steps": 2, "batch": 32}))
    return folder


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return benchmark_run(tmp_path_factory.mktemp("open") / "digits")


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def leaks(raw: bytes) -> list[str]:
    """Which secrets are in these bytes, in plain or in the pictures within."""
    text = raw.decode("utf-8", "replace")
    inner = [base64.b64decode(found) for found in re.findall(r"[A-Za-z0-9+/]{80,}={0,2}", text) if len(found) % 4 == 0]
    text += "".join(part.decode("latin-1") for part in inner)
    return [what for what, pattern in SECRETS.items() if re.search(pattern, text)]


def everything_shared(run: Path, folder: Path) -> dict[str, bytes]:
    """Every output that may be handed on, by name. The run is copied beside other names than the secret ones."""
    call("report", run, "-o", folder / "report.html")
    call("report", run, run, "-o", folder / "pair.html")
    call("figures", run, "-o", folder / "figures")
    made = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    for fmt in ("json", "table"):
        made[f"compare {fmt}"] = call("compare", run, "--format", fmt).encode()
    return made


def test_no_uncharged_byte_in_anything_that_is_shared(own: Path, tmp_path: Path) -> None:
    made = everything_shared(own, tmp_path)
    assert {"report.html", "report.json", "pair.html", "compare json"} <= set(made)
    found = {name: hits for name, raw in made.items() if (hits := leaks(raw))}
    assert found == {}
