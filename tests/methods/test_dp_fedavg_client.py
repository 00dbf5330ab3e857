"""Client-level DP-FedAvg by hand: exact updates to the hub, clipped there, one noise for all of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.hub import PrivateSum
from prismfl.core.method import State
from prismfl.core.payloads import Gradient, Items
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from tests.methods.hand import BIAS, KEY, MEAN_GRADIENT, TASK, WEIGHT, ask, model, same, settings

NAME = "dp-fedavg-client"


def update(value: float) -> Items:
    return {"update": Gradient({WEIGHT: torch.full((2, 2), value), BIAS: torch.zeros(2)})}


def hub_answer(inbox: dict[str, Items], *, noise: int = 0, task: Task = TASK, **changes: float) -> tuple[Items, Cost]:
    hub = PrivateSum(inbox, declared=len(task.sites), noise=Key.seed(noise).noise())
    items = METHODS[NAME].server(settings(NAME, **changes), task, State(0, {"model": model(1.0)}), hub, KEY)
    return items, hub.meter.cost


def test_a_site_sends_the_way_it_went_not_where_it_is() -> None:
    told = ask(NAME, {"model": model()}, epochs=1, batch=2, lr=0.1, sigma=1.0)
    assert same(told.leaves["update"].tensors, {WEIGHT: -0.1 * MEAN_GRADIENT, BIAS: torch.zeros(2)})


def test_an_update_that_is_not_finite_counts_for_nothing() -> None:
    broken = Records(torch.tensor([[math.inf, 0.0]]), torch.tensor([0]))
    told = ask(NAME, {"model": model()}, records=broken, epochs=1, batch=2, lr=0.1, sigma=1.0)
    assert same(told.leaves["update"].tensors, {WEIGHT: torch.zeros(2, 2), BIAS: torch.zeros(2)})


def test_the_hub_adds_the_sum_over_the_sites_that_are_asked() -> None:
    inbox = {f"site-{i}": update(0.1 * (i + 1)) for i in range(3)}
    items, _ = hub_answer(inbox, sigma=0.0, clip=math.inf)
    assert torch.allclose(items["model"].tensors[WEIGHT], torch.full((2, 2), 1.0 + 0.6 / 3))


def test_a_missing_site_counts_as_zero_not_as_the_mean_of_the_others() -> None:
    items, _ = hub_answer({"site-0": update(0.3)}, sigma=0.0, clip=math.inf)
    assert torch.allclose(items["model"].tensors[WEIGHT], torch.full((2, 2), 1.0 + 0.3 / 3))


def test_a_whole_client_is_clipped() -> None:
    """Four numbers of 5 have norm 10; a clip of 2 leaves 1 of each."""
    items, _ = hub_answer({"site-0": update(5.0)}, sigma=0.0, clip=2.0)
    assert torch.allclose(items["model"].tensors[WEIGHT], torch.full((2, 2), 1.0 + 1.0 / 3), atol=1e-4)


def test_the_noise_is_sigma_clip_over_the_sites_asked() -> None:
    drawn = [hub_answer({}, noise=i, sigma=2.0, clip=0.6)[0]["model"].tensors for i in range(80)]
    numbers = torch.cat([t[WEIGHT].flatten() - 1.0 for t in drawn])
    assert float(numbers.std()) == pytest.approx(2.0 * 0.6 / 3, rel=0.15)


def test_participation_divides_by_the_sites_that_are_asked() -> None:
    half = replace(TASK, sites=tuple(f"site-{i}" for i in range(4)), participation=0.5)
    items, _ = hub_answer({"site-0": update(0.3)}, task=half, sigma=0.0, clip=math.inf)
    assert torch.allclose(items["model"].tensors[WEIGHT], torch.full((2, 2), 1.0 + 0.3 / 2))


def test_the_plan_is_one_gaussian_a_round_and_its_unit_is_the_client() -> None:
    cfg = settings(NAME, sigma=1.2, rounds=7)
    assert METHODS[NAME].plan(cfg, TASK) == Cost.gaussian(1.2, times=7, unit="client")
    assert hub_answer({"site-0": update(0.1)}, sigma=1.2)[1] == Cost.gaussian(1.2, unit="client")


def test_towards_the_hub_there_is_no_guarantee() -> None:
    assert ask(NAME, {"model": model()}, sigma=1.0).cost == Cost.non_private()


def test_a_secure_sum_of_it_is_the_update_under_the_same_clip_and_noise() -> None:
    summed = METHODS[NAME].summed
    assert summed is not None
    found = summed(settings(NAME, sigma=1.2, clip=0.7), TASK)
    assert (found.item, found.bound, found.sigma, found.tensors) == ("update", 0.7, 1.2, ())


def test_what_leaves_has_the_declared_shape() -> None:
    declared = METHODS[NAME].shapes(settings(NAME), TASK)
    assert {k: p.shapes() for k, p in ask(NAME, {"model": model()}, sigma=1.0).leaves.items()} == declared


@pytest.mark.parametrize("bad", [{"clip": 0.0}, {"sigma": -0.5}, {"epochs": 0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(NAME, **bad)
