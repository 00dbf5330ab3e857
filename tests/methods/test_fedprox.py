"""FedProx by hand: FedAvg's steps with a pull back to the server's weights."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.methods.hand import BIAS, MEAN_GRADIENT, TASK, WEIGHT, ZERO, ask, model, one_step, same, settings


def test_the_first_step_has_nothing_to_pull_at() -> None:
    told = ask("fedprox", {"model": model()}, epochs=1, batch=2, lr=0.1, mu=5.0)
    assert same(told.leaves["model"].tensors, {WEIGHT: -0.1 * MEAN_GRADIENT, BIAS: torch.zeros(2)})


def test_the_second_step_is_pulled_back_by_lr_times_mu_times_the_way_gone() -> None:
    lr, mu = 0.1, 3.0
    free = ask("fedavg", {"model": model()}, epochs=2, batch=2, lr=lr).leaves["model"].tensors
    held = ask("fedprox", {"model": model()}, epochs=2, batch=2, lr=lr, mu=mu).leaves["model"].tensors
    gone = one_step(ZERO, lr)
    assert same(held, {k: free[k] - lr * mu * gone[k] for k in free})


def test_the_pull_is_towards_the_servers_weights_not_towards_zero() -> None:
    start = model(2.0)
    lr, mu = 0.1, 1.0
    free = ask("fedavg", {"model": start}, epochs=2, batch=2, lr=lr).leaves["model"].tensors
    held = ask("fedprox", {"model": start}, epochs=2, batch=2, lr=lr, mu=mu).leaves["model"].tensors
    first = one_step(start.tensors, lr)
    assert same(held, {k: free[k] - lr * mu * (first[k] - start.tensors[k]) for k in free})


def test_without_a_pull_it_is_fedavg() -> None:
    free = ask("fedavg", {"model": model()}, epochs=3, batch=1).leaves["model"]
    assert ask("fedprox", {"model": model()}, epochs=3, batch=1, mu=0.0).leaves["model"].digest == free.digest


def test_a_strong_pull_keeps_the_model_close() -> None:
    def moved(mu: float) -> float:
        told = ask("fedprox", {"model": model()}, epochs=10, batch=2, lr=0.1, mu=mu)
        return float(told.leaves["model"].tensors[WEIGHT].norm())

    assert moved(0.0) > moved(1.0) > moved(5.0) > 0.0


def test_the_pull_is_on_by_default() -> None:
    assert settings("fedprox").model_dump()["mu"] == 0.1


def test_it_has_no_guarantee() -> None:
    assert METHODS["fedprox"].plan(settings("fedprox"), TASK) == Cost.non_private()
    assert METHODS["fedprox"].guarantee is None


def test_a_negative_pull_is_refused() -> None:
    with pytest.raises(ValidationError, match="mu"):
        settings("fedprox", mu=-0.1)
