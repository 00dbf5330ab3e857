"""The models that a run holds: by name, as modules, each with its scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from prismfl.runs.models import models_of, recommended, scores_of_models
from prismfl.runs.reopen import Reopened, reopen
from prismfl.runs.result import predictor
from tests.runs.small import small_run

PRISM = {
    "networks": 2, "network_width": 4, "network_features": 8, "atoms": 8, "patch": 3, "pool": 2, "rank": 12,
    "covariance": 8, "images": 3, "steps": 3, "train_steps": 5, "train_batch": 8, "copies": 2, "embeddings": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Reopened:
    path = tmp_path_factory.mktemp("prism") / "run"
    more = {"public": "procedural", "public_count": 100, "model": "convnet:4", "epsilon": 50.0}
    return reopen(small_run(path, method="prism", settings=PRISM, **more))


def test_a_network_is_the_only_model_of_an_averaging_run(tmp_path: Path) -> None:
    run = reopen(small_run(tmp_path / "run"))
    models = models_of(run.job, run.state.items)
    assert list(models) == ["network"]
    assert recommended(run.job, models) == "network"
    x = run.dataset.x_test[:7]
    assert torch.allclose(models["network"](x), predictor(run.job)(run.state.items, x), atol=1e-6)


def test_prism_holds_three_models_from_one_release(prism: Reopened) -> None:
    models = models_of(prism.whole_job, prism.state.items)
    assert set(models) == {"network", "head", "linear"}
    x = prism.dataset.x_test[:5]
    assert all(model(x).shape == (5, 10) for model in models.values())
    assert recommended(prism.job, models) == "network"
    assert torch.allclose(models["network"](x), predictor(prism.whole_job)(prism.state.items, x), atol=1e-6)


def test_every_model_has_its_scores(prism: Reopened) -> None:
    scores = scores_of_models(prism.whole_job, prism.state.items, prism.dataset)
    for name, found in scores.items():
        model = models_of(prism.whole_job, prism.state.items)[name]
        right = (model(prism.dataset.x_test).argmax(1) == prism.dataset.y_test).float().mean()
        assert found["accuracy"] == pytest.approx(100 * float(right), abs=1e-3)
        assert len(found["recall"]) == 10
    assert scores["head"]["accuracy"] > 30


def test_there_is_no_model_before_the_first_round(prism: Reopened) -> None:
    assert models_of(prism.whole_job, {}) == {}


def test_models_that_stay_at_the_sites_are_scored_together(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run", method="local-only", epsilon=None, settings={"epochs": 1})
    result = json.loads((path / "result.json").read_text())
    scores = result["scores"]
    assert result["models"] == {}
    assert scores["accuracy"] == pytest.approx(result["accuracy"], abs=1e-3), "the mean over the sites"
    assert scores["records"] == sum(map(sum, scores["confusion"])) == result["sites"] * 360
    assert len(scores["recall"]) == 10
    assert set(scores["intervals"].values()) == {None}, "the same records, answered twice, are no more records"
