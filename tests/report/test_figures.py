"""Figures from run directories: what they need, what they say, and that private numbers stay on the site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from prismfl.cli.main import app
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.report import figures
from prismfl.report.charts import PALETTE, colour_of
from prismfl.runs import planning, simulate
from prismfl.runs.directory import RunDirectory


def tiny_run(folder: Path, method: str, **changes: object) -> Path:
    settings = {**METHODS[method].tiny, "rounds": 3}
    if METHODS[method].guarantee:
        settings["sigma"] = 1.0
    options = {"data": "mnist-5k", "subset": 200, "sites": 2, "model": "mlp:4", "transcript": "full", "seed": 3}
    config = {**options, "method": method, "out": str(folder / method), "settings": settings, **changes}
    simulate.run(planning.configure(config))
    return folder / method


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [tiny_run(folder, "fedlap"), tiny_run(folder, "fedlap-dp"), tiny_run(folder, "fedavg")]


def test_the_command_writes_every_figure(runs: list[Path], tmp_path: Path) -> None:
    arguments = ["figures", *map(str, runs), "-o", str(tmp_path), "--format", "json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    made = {row["figure"]: Path(row["file"]) for row in json.loads(result.stdout)}
    assert set(made) == {"progress", "trust region", "images at three stages", "pixel values"}
    for path in made.values():
        with Image.open(path) as picture:
            assert min(picture.size) > 100
    assert not list(tmp_path.glob("on-site*"))


def test_gradient_norms_are_drawn_on_site_only(runs: list[Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["figures", str(runs[0]), "-o", str(tmp_path), "--on-site"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "on-site-gradient-norms.png").is_file()


def test_every_round_says_its_epsilon_and_how_far_the_server_went(runs: list[Path]) -> None:
    directory = RunDirectory.open(runs[1])
    spent = [row["epsilon"] for row in directory.metrics()]
    assert len(spent) == 3
    assert 0 < spent[0] < spent[1] < spent[2]
    taken = figures._taken(directory)
    assert list(taken) == [1, 2, 3]
    assert all(0 < radius <= 1.5 and 1 <= steps <= 5 for radius, steps in taken.values())


def test_a_method_without_images_has_no_pictures_of_them(runs: list[Path], tmp_path: Path) -> None:
    directory = RunDirectory.open(runs[2])
    assert figures.stages(directory, tmp_path / "a.png") is None
    assert figures.pixels(directory, tmp_path / "b.png") is None
    assert figures.trust_region({"fedavg": directory}, tmp_path / "c.png") is None


def test_the_same_method_twice_keeps_both_names(runs: list[Path]) -> None:
    assert list(figures.named([runs[0], runs[0].parent / "fedavg"])) == ["fedlap", "fedavg"]
    names = list(figures.named([runs[0], runs[0]]))
    assert names == ["fedlap (fedlap)"]


def test_a_run_without_accuracy_is_said(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", {"method": "fedavg"}, {})
    with pytest.raises(UserError, match="has measured no accuracy yet"):
        figures.progress(figures.named([tmp_path / "run"]), tmp_path / "x.png", on_site=True)


def test_stages_are_first_middle_last() -> None:
    assert figures._stages([0, 1, 2, 3, 4]) == [0, 2, 4]
    assert figures._stages([7]) == [7]


def test_each_method_is_drawn_in_its_colour_and_unlike_runs_apart(runs: list[Path], tmp_path: Path) -> None:
    opened = figures.named(runs)
    foreign = RunDirectory.create(
        tmp_path / "foreign", {"run": "f", "method": "a.b:MINE", "data": "elsewhere", "delta": 1e-5}, {}
    )
    assert {name: look["color"] for name, look in figures._looks({**opened, "mine": foreign}).items()} == {
        "fedlap": PALETTE[colour_of("fedlap")],
        "fedlap-dp": PALETTE[colour_of("fedlap-dp")],
        "fedavg": PALETTE[colour_of("fedavg")],
        "mine": PALETTE[colour_of("a.b:MINE")],
    }
    twice = figures._looks({"one": opened["fedavg"], "two": opened["fedavg"]})
    assert twice["one"]["linestyle"] != twice["two"]["linestyle"]
    assert len(figures._by_group({**opened, "mine": foreign})) == 2
