"""`prismfl site`: what its operator is shown of a folder; more is in tests/site."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.command import invoke, refused, shown
from tests.hostile.test_server import ask, description, down
from tests.site.folders import make_site


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that has answered one round."""
    office = make_site(tmp_path_factory.mktemp("site"), "north")
    told = description()
    for kind, state in (("hello", b""), ("round", down(told))):
        assert ask(office, told, kind=kind, state=state).kind in ("ready", "release")
    return office.folder


def test_check_shows_what_is_declared(asked: Path) -> None:
    found = shown("site", "check", asked, cwd=asked)
    assert (found["site"], found["data"], found["shape"], found["cap"]) == ("north", "digits", [1, 8, 8], 50.0)
    assert found["methods"] == ["dp-fedavg"]
    table = invoke("site", "check", asked, cwd=asked, env={"COLUMNS": "200"}).stdout
    assert "max_rounds" in table
    assert "0, 1, 2, 3" in table


def test_status_counts_what_left(asked: Path) -> None:
    found = shown("site", "status", asked, cwd=asked)
    assert (found["running"], found["releases"], found["words"]) == (False, 1, ["ready (round 1)"])
    assert found["ledger"][0]["releases"] == 1
    assert "ledger, epsilon spent" in invoke("site", "status", asked, cwd=asked).stdout


def test_egress_and_runs_tell_the_same_run(asked: Path) -> None:
    (run,) = shown("site", "runs", asked, cwd=asked)
    assert run["state"] == "holds budget"
    assert "dp-fedavg" in run["what"]
    rows = shown("site", "egress", asked, cwd=asked)
    assert {row["run"] for row in rows} == {run["run"]}
    text = invoke("site", "egress", asked, cwd=asked, env={"COLUMNS": "200"}).stdout
    assert "model (weights)" in text


def test_an_empty_outbox(asked: Path) -> None:
    assert shown("site", "outbox", asked, cwd=asked) == []
    refused("site", "deny", asked, "x", "--by", "Ann", "--reason", "no", cwd=asked, words="waiting: none")


def test_code_by_name_cannot_be_allowed(tmp_path: Path) -> None:
    args = ("site", "init", tmp_path / "e", "--name", "e", "--data", "digits", "--method", "os:system")
    refused(*args, cwd=tmp_path, words="Unknown method 'os:system'")
    assert not (tmp_path / "e").exists()


def folders(root: Path) -> Path:
    """Grey pictures in class folders, one of them in colour."""
    for i, (name, mode) in enumerate(product(("a", "b"), ("L", "L", "RGB"))):
        (root / "own" / name).mkdir(parents=True, exist_ok=True)
        Image.new(mode, (12, 12), 40 * i if mode == "L" else (40 * i,) * 3).save(root / "own" / name / f"{i}.png")
    return root / "own"


def archive(root: Path, x: np.ndarray) -> Path:
    np.savez(root / "own.npz", x=x, y=np.array([0, 1] * 3))
    return root / "own.npz"


def table(root: Path, kind: str) -> Path:
    ages, ill = [20, 30, 40, 50, 60, 999], ["no", "yes"] * 3
    (root / "schema.toml").write_text(
        'label = "ill"\nclasses = ["no", "yes"]\n[[columns]]\nname = "age"\nmin = 0\nmax = 100\n'
    )
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"age": ages, "ill": ill}), root / "own.parquet")
    else:
        rows = [f"{age},{label}" for age, label in zip(ages, ill)]
        (root / "own.csv").write_text("\n".join(["age,ill", *rows]) + "\n")
    return root / f"own.{kind}"


OWN = {
    "folders": (folders, ("--channels", "1"), ["image", [1, 12, 12], ["a", "b"]]),
    "npz images": (lambda root: archive(root, np.zeros((6, 9, 9), np.uint8)), ("--classes", "a,b"),
                   ["image", [1, 9, 9], ["a", "b"]]),
    "npz table": (lambda root: archive(root, np.zeros((6, 4))),
                  ("--classes", "a,b", "--bounds", "0,1", "--features", "4"), ["table", [4], ["a", "b"]]),
    "csv": (lambda root: table(root, "csv"), ("--schema", "schema.toml"), ["table", [1], ["no", "yes"]]),
    "parquet": (lambda root: table(root, "parquet"), ("--schema", "schema.toml"), ["table", [1], ["no", "yes"]]),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_own_data_of_every_kind_are_made_a_site_and_checked(kind: str, tmp_path: Path) -> None:
    """Grey stays grey; nothing is left out, and nothing is spent."""
    make, options, facts = OWN[kind]
    data = make(tmp_path)
    done = invoke("site", "init", "north", "--data", data, "--method", "dp-fedavg", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = shown("site", "check", "north", cwd=tmp_path)
    assert [found["kind"], found["shape"], found["classes"]] == facts
    assert found["left out"] == 0
    assert not list(tmp_path.rglob("ledger.sqlite"))
