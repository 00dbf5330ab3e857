"""A run directory opened again: the same job, the same records, the state it ended with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.errors import UserError
from prismfl.metrics.utility import accuracy
from prismfl.runs.directory import RunDirectory
from prismfl.runs.reopen import reopen
from tests.runs.small import small_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("reopen") / "r")


def test_the_job_has_its_name_and_solved_settings(path: Path) -> None:
    found = reopen(path)
    assert found.job.run == RunDirectory(path).read_json("config.json")["run"]
    assert found.job.settings.model_dump()["sigma"] > 0
    assert found.job.task.sites == ("site-0", "site-1")


def test_the_records_are_dealt_as_they_were(path: Path) -> None:
    found = reopen(path)
    assert sorted(int(i) for part in found.parts for i in part) == list(range(200))
    again = reopen(path)
    assert all((a == b).all() for a, b in zip(found.parts, again.parts))


def test_the_final_model_scores_as_the_run_reported(path: Path) -> None:
    found = reopen(path)
    score = accuracy(found.predict(), found.state.items, found.dataset.x_test, found.dataset.y_test)
    assert score == pytest.approx(RunDirectory(path).read_json("result.json")["accuracy"], abs=1e-3)


def test_a_method_without_images_has_none(path: Path) -> None:
    found = reopen(path)
    assert found.synthetic is None
    assert found.public is None


def test_public_images_are_made_again(tmp_path: Path) -> None:
    run = small_run(
        tmp_path / "r",
        method="prism-head",
        public_count=40,
        settings={"networks": 2, "atoms": 6, "patch": 3, "pool": 2, "rank": 8, "covariance": 4},
    )
    one, two = reopen(run).public, reopen(run).public
    assert one is not None
    assert two is not None
    assert one.shape == (40, 1, 8, 8)
    assert torch.equal(one, two)


def test_a_run_that_never_began_has_no_state(tmp_path: Path, path: Path) -> None:
    config = RunDirectory(path).read_json("config.json")
    RunDirectory.create(tmp_path / "r", config, {})
    with pytest.raises(UserError) as error:
        _ = reopen(tmp_path / "r").state
    assert str(error.value) == f"'{tmp_path / 'r'}' has no checkpoint: nothing was sent yet."


def test_a_config_with_unknown_words_is_refused(tmp_path: Path, path: Path) -> None:
    config = RunDirectory(path).read_json("config.json")
    RunDirectory.create(tmp_path / "r", {**config, "epsylon": 1}, {})
    with pytest.raises(UserError, match=r"^Unknown key 'epsylon' in .*config\.json; did you mean 'epsilon'\?$"):
        reopen(tmp_path / "r")
