"""Federations of arrays and frames: the same runs, on the same ledger, as of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prismfl
from prismfl.privacy.ledger.place import LEDGER_FILE
from prismfl.runs import federation as module
from prismfl.runs import simulate
from prismfl.runs.config import RunConfig
from prismfl.sources import DEPLOYMENT, SIMULATION
from tests.runs.test_html import HOSTILE

QUICK: dict[str, Any] = {"epsilon": 2.0, "model": "logreg", "settings": {"rounds": 1, "steps": 2, "batch": 16.0}}
SCHEMA = {
    "columns": [{"name": "age", "min": 0, "max": 100}, {"name": "sex", "type": "binary", "categories": ["f", "m"]}],
    "label": "ill",
    "classes": ["no", "yes"],
}


def images(n: int = 60, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 8, 8), dtype=np.uint8), rng.integers(0, 2, n)


def made(**given: Any) -> prismfl.Federation:
    values: dict[str, Any] = {"classes": ["no", "yes"], "records": 50, **given}
    return prismfl.Federation.from_arrays([images(), images(seed=1)], **values)


def frame(n: int = 60) -> dict[str, list[Any]]:
    return {"age": [20 + i % 60 for i in range(n)], "sex": ["f", "m"] * (n // 2), "ill": ["no", "yes"] * (n // 2)}


def test_it_keeps_each_record_at_its_site_and_draws_noise_from_the_operating_system(tmp_path: Path) -> None:
    federation = made()
    counted = [sum(v for k, v in row.items() if k != "site") for row in federation.counts()]
    assert sum(counted) == len(federation.dataset.y_train) < 120
    assert min(counted) > 30
    run = federation.run("dp-fedavg", **QUICK, out=str(tmp_path / "run"), ledger=str(tmp_path / "book"))
    assert run.result is not None
    assert (run.result.noise, run.result.guarantee) == (DEPLOYMENT, "differential privacy")
    assert run.epsilon == federation.plan("dp-fedavg", **QUICK).epsilon
    assert run.result.ledger == str(tmp_path / "book" / LEDGER_FILE)
    assert {m.site for m in run.messages if m.direction == "up"} == {"site-0", "site-1"}
    assert run.model.predict(images(3)[0]).shape == (3,)
    seeded = federation.run("dp-fedavg", **QUICK, seed=1, out=str(tmp_path / "two"), ledger=str(tmp_path / "book"))
    assert seeded.result is not None
    assert seeded.result.noise == SIMULATION
    assert "no protection" in repr(seeded)


def test_a_file_and_a_federation_of_the_same_records_share_one_budget(tmp_path: Path) -> None:
    (x, y), (x2, y2) = images(), images(seed=1)
    np.savez(tmp_path / "a.npz", x=np.concatenate([x, x2]), y=np.concatenate([y, y2]))
    book = str(tmp_path / "book")
    common: dict[str, Any] = {**QUICK, "ledger": book, "cap": 3.0}
    made().run("dp-fedavg", **common, out=str(tmp_path / "one"))
    config = RunConfig(
        method="dp-fedavg", data=str(tmp_path / "a.npz"), classes=["no", "yes"], records=50, sites=2,
        out=str(tmp_path / "two"), **common,
    )  # fmt: skip
    with pytest.raises(prismfl.BudgetError):
        simulate.run(config)
    with pytest.raises(prismfl.BudgetError):
        made(name="another").run("dp-fedavg", **common, out=str(tmp_path / "three"))


def test_what_a_run_keeps_tells_nothing_of_the_records(tmp_path: Path) -> None:
    """No name that is made of the records, no print: a folder may be sent on."""
    a, b = made(), made()
    assert a.name != b.name
    run = a.run("dp-fedavg", **QUICK, out=str(tmp_path / "run"), ledger=str(tmp_path / "book"))
    told = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (told["data"], told["dataset"]) == ("in-memory/arrays", a.name)
    run.directory.set_status("running")
    with pytest.raises(prismfl.UserError, match="handed over in Python"):
        simulate.resume(run.path)


def test_frames_with_and_without_pandas(tmp_path: Path) -> None:
    assert "pandas" not in vars(module)
    federation = prismfl.Federation.from_frames([frame(), frame(40)], schema=SCHEMA, label="ill", records=40)
    run = federation.run("ddp-vae", epsilon=3.0, samples=20, out=str(tmp_path / "run"))
    columns = run.columns
    assert columns is not None
    assert list(columns) == ["age", "sex", "ill"]
    assert set(columns["ill"]) <= {"no", "yes"}
    with pytest.raises(prismfl.UserError, match="Expected declared columns"):
        prismfl.Federation.from_frames([frame()], records=40)
    with pytest.raises(prismfl.UserError, match="Expected column 'age' of the schema in site 1"):
        prismfl.Federation.from_frames([{"x": [1], "ill": ["no"]}], schema=SCHEMA, records=40)


def test_a_split_follows_from_the_records_and_its_seed(tmp_path: Path) -> None:
    x, y = images(200)

    def dealt(rows: Any, **given: Any) -> prismfl.Federation:
        return prismfl.Federation.split(
            x[rows], y[rows], "dirichlet(0.3)", sites=3, classes=2, records=60, test=images(9), **given
        )

    one, turned = dealt(slice(None)), dealt(slice(None, None, -1))
    assert one.counts() == turned.counts()
    assert one.counts() != dealt(slice(None), seed=1).counts()
    assert len(one.dataset.y_test) == 9
    run = one.run("dp-fedavg", **QUICK, out=str(tmp_path / "run"))
    assert run.result is not None
    assert (run.result.split, run.result.sites, run.result.noise) == ("dirichlet(0.3)", 3, DEPLOYMENT)
    with pytest.raises(prismfl.UserError, match="did you mean 'dirichlet'"):
        prismfl.Federation.split(x, y, "dirichlt(1)", classes=2, records=60)


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("give classes=", {"classes": None}),
        ("at least two declared classes", {"classes": 1}),
        ("got 'no'", {"classes": "no"}),
        ("give records=1000", {"records": None}),
        ("got 0.5", {"records": 0.5}),
        ("got -3", {"records": -3}),
        ("no data set's, got 'digits'", {"name": "digits"}),
        ("units for each of 2 sites", {"units": [[1]]}),
        ("Expected a pair", {"test": 3}),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_charged(line: str, given: dict[str, Any]) -> None:
    with pytest.raises(prismfl.UserError) as error:
        made(**given)
    assert line in str(error.value)


def test_a_run_is_refused_before_anything_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    federation = made()
    with pytest.raises(prismfl.UserError, match="Expected no 'classes' here"):
        federation.run("dp-fedavg", classes=["a"])
    with pytest.raises(prismfl.UserError, match="Unknown key 'epsilonn'"):
        federation.run("dp-fedavg", epsilonn=1.0)
    with pytest.raises(prismfl.UserError, match="needs a privacy budget"):
        federation.run("dp-fedavg")
    with pytest.raises(prismfl.UserError, match="a site, got none"):
        prismfl.Federation.from_arrays([], classes=2, records=1)
    assert list(tmp_path.iterdir()) == []


def test_how_it_looks_shows_declared_facts_alone_and_escapes_them() -> None:
    federation = made(classes=["no", HOSTILE])
    assert "<script" not in federation._repr_html_()
    assert "&lt;script&gt;" in federation._repr_html_()
    exact = len(federation.dataset.y_train)
    assert str(exact) not in federation._repr_html_() + repr(federation)
