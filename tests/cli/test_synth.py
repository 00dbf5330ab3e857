"""`prismfl synth` and `prismfl schema` as commands: options that belong to the other kind, seeds, output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from prismfl.cli.main import app
from prismfl.cli.synth import is_table
from prismfl.errors import UserError
from prismfl.methods.prism import prism
from prismfl.privacy.ledger.place import ledger_path
from tests.synth.test_tables import FAST, HEADER, SCHEMA, some_rows, write


def called(*words: object, sets: list[str] | None = None) -> Result:
    asked = [str(word) for word in words] + [part for one in sets or [] for part in ("--set", one)]
    return CliRunner().invoke(app, asked)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path, HEADER, some_rows())
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def test_a_draft_then_a_synthetic_table(place: Path) -> None:
    data, out = place / "data.csv", place / "cli" / "s.csv"
    drafted = called("schema", data, "--label", "outcome", "-o", place / "draft.toml")
    assert drafted.exit_code == 0
    assert "private" in drafted.output
    again = called("schema", data, "-o", place / "draft.toml")
    assert isinstance(again.exception, UserError)
    asked = (
        "synth",
        data,
        "--schema",
        place / "schema.toml",
        "-e",
        2,
        "-o",
        out,
        "--records",
        60,
        "--method",
        "ddp-vae",
    )
    result = called(*asked, "--seed", 1, "--format", "json", sets=FAST)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["out"], found["guarantee"]) == (str(out), "simulation: no protection")
    assert out.exists()
    again = called(*asked, sets=FAST)
    assert "exists already; give --force" in str(again.exception)
    for_people = called(*asked, "--force", sets=FAST)
    assert "your data so far" in for_people.stdout
    assert "differential privacy" in for_people.stdout


def test_images_with_and_without_a_seed(tmp_path: Path) -> None:
    tiny = [f"{k}={v}" for k, v in {**prism.METHOD.tiny, "public_count": 100}.items()]
    for name, more in (("a", ["--seed", 0]), ("b", ["--images", 2])):
        sets = [one for one in tiny if name == "a" or not one.startswith("images=")]
        result = called("synth", "digits", "-e", 2, "-o", tmp_path / name, "--format", "json", *more, sets=sets)
        assert result.exit_code == 0, result.output
    kinds = [json.loads((tmp_path / name / "certificate.json").read_text())["noise"] for name in "ab"]
    assert len(list((tmp_path / "b" / "images").rglob("*.png"))) == 20
    assert kinds == ["seeded: simulation only", "operating system"], "a seed of 0 is a seed"


def test_images_through_ones_own_encoder(tmp_path: Path) -> None:
    tiny = [f"{k}={v}" for k, v in {**prism.METHOD.tiny, "public_count": 100}.items()]
    own = ("--encoder", "tests.nets.encoders.tiny:build")
    result = called("synth", "digits", "-e", 2, "--seed", 0, *own, "-o", tmp_path / "a", sets=tiny)
    assert result.exit_code == 0, result.output
    told = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert told["public_encoder"] == "tests.nets.encoders.tiny:build, trained on a leaflet"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data.csv", "--public", "procedural"), "Expected no --public for a table; it belongs to images."),
        (("data.csv", "--encoder", "scattering"), "Expected no --encoder for a table; it belongs to images."),
        (("digits", "--encoder", "scaterring"), "Unknown encoder 'scaterring'"),
        (("data.csv", "--images", 3), "Expected no --images for a table; it belongs to images."),
        (("digits", "--schema", "schema.toml"), "Expected no --schema for images; it belongs to tables."),
        (("digits", "--records", 60), "Expected no --records for images; it belongs to tables."),
        (("digits", "--rows", 60), "Expected no --rows for images; it belongs to tables."),
    ],
)
def test_an_option_of_the_other_kind_is_refused(tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    result = called("synth", *words, "-e", 1, "-o", tmp_path / "out.csv")
    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith(message)
    assert not ledger_path().exists()


@pytest.mark.parametrize(
    ("data", "table"),
    [("breast-cancer", True), ("digits", False), ("A.CSV", True), ("a.parquet", True), ("folder", False)],
)
def test_what_is_a_table(data: str, table: bool) -> None:
    assert is_table(data) is table
