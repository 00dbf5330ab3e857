"""What a finished run reports: scores, cost, digest, where its noise came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismfl.core.method import State
from prismfl.core.payloads import SyntheticSet, Weights
from prismfl.core.release import Release
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from prismfl.runs.directory import Message, RunDirectory
from prismfl.runs.result import noise_of, predictor, result_of, save_synthetic, state_digest
from prismfl.runs.starting import total_of
from prismfl.sources import DEPLOYMENT, SIMULATION
from tests.laws.world import make_job

COST = Cost.gaussian(1.3, 1 / 3, times=4)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "r", {}, {})


def model(value: float) -> State:
    return State(2, {"model": Weights({"w": torch.tensor([value])})})


def test_scores_bytes_and_epsilon(run: RunDirectory) -> None:
    for direction, size in (("up", 10), ("up", 20), ("down", 5)):
        run.record(Message(0 if size != 20 else 1, "site-0", direction, size, "d", None), None)
    run.add_metrics({"round": 1, "seconds": 1.234})
    result = result_of(make_job("dp-fedavg"), run, model(1.0), scores=[80.0, 90.0], cost=COST, config=None)
    assert (result.accuracy, result.accuracy_min) == (85.0, 80.0)
    assert (result.bytes_up, result.bytes_down, result.seconds) == (30, 5, 1.23)
    assert result.epsilon == pytest.approx(account.epsilon(COST, 1e-5))
    assert result.sigma == 1.3
    assert result.own_data


def test_without_a_guarantee_epsilon_is_none_and_the_word_is_none(run: RunDirectory) -> None:
    result = result_of(make_job("fedavg"), run, model(1.0), scores=[], cost=Cost.non_private(), config=None)
    assert (result.epsilon, result.guarantee, result.accuracy) == (None, "none", None)


def test_the_digest_follows_from_the_items_alone() -> None:
    assert state_digest(model(1.0)) == state_digest(State(7, model(1.0).items))
    assert state_digest(model(1.0)) != state_digest(model(2.0))


@pytest.mark.parametrize(
    ("config", "result", "found"),
    [
        ({"noise": "seeded"}, {}, SIMULATION),
        ({"noise": "operating-system"}, {}, DEPLOYMENT),
        ({"noise": "operating-system"}, {"noise": SIMULATION}, SIMULATION),
        ({}, {"noise": DEPLOYMENT}, DEPLOYMENT),
        ({}, {}, None),
    ],
)
def test_one_word_of_a_seed_is_enough(
    config: dict[str, Any], result: dict[str, Any], found: str | None, run: RunDirectory
) -> None:
    assert noise_of(run, config, result) == found


def test_a_kept_release_says_where_its_noise_came_from(run: RunDirectory) -> None:
    raw = Release("r", "site-0", 0, model(1.0).items, COST, SIMULATION).encode()
    run.record(Message(0, "site-0", "up", len(raw), "d", "wire/0"), raw)
    assert noise_of(run, {}, {}) == SIMULATION
    (run.path / "wire/0").write_bytes(b"damaged")
    assert noise_of(run, {}, {}) is None


def test_the_total_of_a_run_is_the_worst_sites(run: RunDirectory) -> None:
    run.write_json("result.json", {"delta": 1e-5})
    run.write_json("ledger.json", {"a": Cost.gaussian(5.0).to_json(), "b": Cost.gaussian(1.0).to_json()})
    assert total_of(run) == Cost.gaussian(1.0)
    run.write_json("result.json", {"delta": 1e-5, "cost_total": COST.to_json()})
    assert total_of(run) == COST


def test_a_synthetic_set_is_saved_with_its_picture(tmp_path: Path) -> None:
    made = SyntheticSet.of(torch.full((3, 1, 8, 8), 51, dtype=torch.uint8), torch.tensor([0, 1, 2]))
    save_synthetic(State(1, {"synthetic": made}), tmp_path / "gen", make_job("prism").task)
    with np.load(tmp_path / "gen" / "gen.npz") as saved:
        assert np.allclose(saved["x"], 0.2)
        assert saved["y"].tolist() == [0, 1, 2]
    assert (tmp_path / "gen" / "sample.png").is_file()


def test_a_run_without_a_synthetic_set_saves_none(tmp_path: Path) -> None:
    save_synthetic(model(1.0), tmp_path / "gen", make_job("prism").task)
    assert not (tmp_path / "gen").exists()


def test_the_model_scores_records() -> None:
    job = make_job("fedavg", model="logreg")
    items = job.method.init(job.settings, job.task, job.key)
    x = torch.rand(5, 1, 8, 8)
    weights = items["model"].tensors
    expected = x.flatten(1) @ weights["1.weight"].T + weights["1.bias"]
    assert torch.allclose(predictor(job)(items, x), expected, atol=1e-5)
