"""DP-FedProx by hand: the pull is added after the noise, so it costs nothing and is not noised."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import TASK, WEIGHT, ZERO, ask, model, one_step, same, settings

FREE: dict[str, Any] = {"sigma": 0.0, "clip": math.inf, "batch": 2.0, "lr": 0.1}


def test_without_noise_and_clip_it_is_fedprox_on_whole_batches() -> None:
    private = ask("dp-fedprox", {"model": model()}, steps=2, mu=3.0, **FREE)
    plain = ask("fedprox", {"model": model()}, epochs=2, batch=2, lr=0.1, mu=3.0)
    assert same(private.leaves["model"].tensors, plain.leaves["model"].tensors)


def test_the_second_step_is_pulled_back_by_lr_times_mu_times_the_way_gone() -> None:
    free = ask("dp-fedavg", {"model": model()}, steps=2, **FREE).leaves["model"].tensors
    held = ask("dp-fedprox", {"model": model()}, steps=2, mu=2.0, **FREE).leaves["model"].tensors
    gone = one_step(ZERO, 0.1)
    assert same(held, {k: free[k] - 0.1 * 2.0 * gone[k] for k in free})


def test_the_pull_is_not_clipped() -> None:
    """At a clip of 0.01 two steps go 0.01 and back by the pull of the first, which is far over the clip."""
    short: dict[str, Any] = {"sigma": 0.0, "clip": 0.01, "batch": 2.0, "lr": 1.0}
    free = ask("dp-fedavg", {"model": model()}, steps=2, **short).leaves["model"].tensors[WEIGHT]
    held = ask("dp-fedprox", {"model": model()}, steps=2, mu=1.0, **short).leaves["model"].tensors[WEIGHT]
    first = ask("dp-fedavg", {"model": model()}, steps=1, **short).leaves["model"].tensors[WEIGHT]
    assert float((free - held - first).norm()) < 1e-6


def test_the_pull_changes_neither_plan_nor_meter() -> None:
    for mu in (0.0, 5.0):
        cfg = settings("dp-fedprox", sigma=2.0, mu=mu, rounds=3, steps=4, batch=1.0)
        assert METHODS["dp-fedprox"].plan(cfg, TASK) == Cost.gaussian(2.0, 0.5, times=12)
        told = ask("dp-fedprox", {"model": model()}, sigma=2.0, mu=mu, steps=4, batch=1.0)
        assert told.cost == Cost.gaussian(2.0, 0.5, times=4)


def test_without_a_pull_it_is_dp_fedavg_with_the_same_noise() -> None:
    same_noise: dict[str, Any] = {"sigma": 1.0, "clip": 0.3, "batch": 1.0, "lr": 0.1, "steps": 3}
    one = ask("dp-fedavg", {"model": model()}, **same_noise)
    two = ask("dp-fedprox", {"model": model()}, mu=0.0, **same_noise)
    assert one.leaves["model"].digest == two.leaves["model"].digest


def test_the_pull_is_on_by_default_and_never_negative() -> None:
    assert settings("dp-fedprox").model_dump()["mu"] == 0.1
    with pytest.raises(ValidationError, match="mu"):
        settings("dp-fedprox", mu=-1.0)
