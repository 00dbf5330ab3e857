"""The rule for generators: what it asks for grows with the records, and never with the noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prismfl.core.method import Wanted
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.methods.generators import auto, images

GROWS = {
    "dp-merf": ("features", "steps", "samples"),
    "dp-gan": ("steps", "width", "samples"),
    "dp-feta": ("steps", "width", "draws", "warm_steps", "samples"),
    "dpdm": ("steps", "width", "draws", "samples"),
    "3dgl": ("queries",),
    "ddp-vae": ("queries",),
}
TASK = Task("own", (1, 8, 8), tuple("0123456789"), tuple(f"site-{i}" for i in range(5)), 287, model="convnet:32")


def choose(name: str, task: Task = TASK, epsilon: float = 1.0, **given: Any) -> Any:
    method = METHODS[name]
    assert method.auto is not None
    found = method.auto(Wanted(given, task, epsilon))
    assert found.words
    assert not set(found.settings) & set(given)
    return method.settings(**{**found.settings, **given})


@pytest.mark.parametrize("name", GROWS)
def test_more_noise_never_makes_a_larger_plan(name: str) -> None:
    by_records = [choose(name, replace(TASK, records=n)) for n in (50, 3_000, 500_000)]
    by_epsilon = [choose(name, replace(TASK, records=3_000), e) for e in (0.1, 1.0, 10.0)]
    for field in GROWS[name]:
        for plans in (by_records, by_epsilon):
            values = [getattr(cfg, field) for cfg in plans]
            assert values == sorted(values)
            assert values[0] < values[-1]


@pytest.mark.parametrize("name", GROWS)
def test_many_records_get_as_many_steps_as_few_ones_would_drown_in(name: str) -> None:
    cfg = choose(name, replace(TASK, records=10_000_000))
    plain: Any = METHODS[name].settings()
    if name == "dp-merf":
        assert cfg.features == plain.features
    if name in ("3dgl", "ddp-vae"):
        assert (cfg.queries, cfg.start, cfg.rate) == (plain.queries, plain.start, plain.rate)


def test_features_of_dp_merf_stop_where_a_feature_is_as_long_as_its_noise() -> None:
    wanted = Wanted({}, replace(TASK, records=800), 1.0)
    sigma = auto._sigma(wanted)
    clear = 5**0.5 * 80 / sigma
    assert choose("dp-merf", wanted.task).features == pytest.approx(clear**2, abs=2)


def test_sizes_of_dp_merf_stand_out_of_their_noise_where_records_are_few() -> None:
    cfg = choose("dp-merf").model_copy(update={"sigma": auto._sigma(Wanted({}, TASK, 1.0))})
    assert images.CLEAR * cfg.count_noise * 5**0.5 < 5 * 28.7
    assert choose("dp-merf", replace(TASK, records=100_000)).share_count == 0.02


@pytest.mark.parametrize("name", GROWS)
def test_one_holder_releases_once(name: str) -> None:
    assert choose(name, replace(TASK, sites=TASK.sites[:1])).rounds == 1


def test_given_rounds_leave_no_round_to_pool_central_images_in() -> None:
    assert choose("dp-feta").easy == "pooled"
    assert choose("dp-feta", rounds=1).easy == "own"
    assert choose("dp-feta", easy="own").rounds == 1


@pytest.mark.parametrize("name", ["dp-gan", "dp-feta", "dpdm"])
def test_a_drowned_run_says_so_and_a_clear_one_does_not(name: str) -> None:
    method = METHODS[name]
    assert method.advice is not None
    for records, sigma, drowned in ((30, 20.0, True), (100_000, 1.0, False)):
        task = replace(TASK, records=records)
        cfg = choose(name, task).model_copy(update={"sigma": sigma})
        assert any("noise drowns" in line for line in method.advice(cfg, task)) is drowned


@pytest.mark.parametrize("name", GROWS)
def test_the_classifier_is_no_network_that_pools_everything_away(name: str) -> None:
    method = METHODS[name]
    assert method.auto is not None
    assert method.auto(Wanted({}, TASK, 1.0, free_model=True)).model == "mlp"
    assert method.auto(Wanted({}, TASK, 1.0)).model is None
