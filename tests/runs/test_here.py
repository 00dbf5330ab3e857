"""A prismfl.toml that lies in the working folder: read where nothing is named, and never able to do harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismfl.errors import UserError
from prismfl.runs.config import read
from prismfl.runs.here import with_here


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(given: dict[str, Any] | None = None, file: Path | None = None, sets: tuple[str, ...] = ()) -> Any:
    said: list[str] = []
    return with_here(file, sets, given or {}, said.append), said


def test_read_where_nothing_is_named_and_options_win(folder: Path) -> None:
    (folder / "prismfl.toml").write_text('data = "digits"\nepsilon = 1.0\nclasses = [0, 1]\n')
    found, said = here({"epsilon": 2.0, "data": None})
    assert (found["data"], found["epsilon"]) == ("digits", 2.0)
    assert said == ["using ./prismfl.toml: data digits, epsilon 2; options win over it"]


@pytest.mark.parametrize("named", [{"given": {"data": "mnist"}}, {"file": Path("x.toml")}, {"sets": ("data=mnist",)}])
def test_whoever_names_data_or_a_config_means_that(folder: Path, named: dict[str, Any]) -> None:
    (folder / "prismfl.toml").write_text('data = "digits"\n')
    found, said = here(**named)
    assert (found, said) == (named.get("given", {}), [])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('method = "evil.mod:METHOD"', "--method"),
        ('encoder = "evil.mod:build"', "--encoder"),
        ('encoder = "weights.pt"', "--encoder"),
        ('encoder = "scattering+weights.onnx"', "--encoder"),
        ('noise = "seeded"', "'noise'"),
        ("seed = 1", "'seed'"),
        ('ledger = "/tmp/elsewhere"', "'ledger'"),
        ('out = "../../elsewhere"', "'out'"),
        ('start = "run"', "'start'"),
        ('data_dir = "/"', "'data_dir'"),
        ("epsilom = 1", "did you mean 'epsilon'"),
    ],
)
def test_a_file_that_nobody_named_runs_no_code_and_hides_no_noise(folder: Path, line: str, words: str) -> None:
    (folder / "evil").mkdir()
    (folder / "evil" / "mod.py").write_text("open('ran', 'w')\n")
    (folder / "prismfl.toml").write_text(f'data = "digits"\n{line}\n')
    with pytest.raises(UserError, match=r"prismfl\.toml") as error:
        here()
    assert words in str(error.value)
    assert not (folder / "ran").exists()


def test_its_paths_are_relative_to_itself(folder: Path) -> None:
    (folder / "project" / "scans").mkdir(parents=True)
    file = Path("project/prismfl.toml")
    file.write_text('data = "scans"\n')
    assert Path(read(file)["data"]) == Path("project/scans")
    file.write_text('data = "digits"\n')
    assert read(file)["data"] == "digits"
