"""Noise against the way: by hand, and the line that a client-level run says before it starts."""

from __future__ import annotations

import math
import re

import pytest
import torch

from prismfl.core.task import Task
from prismfl.methods import METHODS
from prismfl.methods.averaging import auto
from prismfl.methods.drowning import CHANCE, USEFUL, noise_share, warn_clients, warn_records
from prismfl.privacy import account
from prismfl.privacy.cost import Cost


def test_the_share_is_that_of_noise_that_was_drawn() -> None:
    """Four sites, nine steps of one clip, noise of 2 clips on 10,000 numbers over 50 records."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randn(9, 4, 10_000, generator=draw) * 2.0 / 50
    length = float(drawn.mean(1).sum(0).norm()) / 9
    assert noise_share(2.0, 10_000, steps=9, units=50, sites=4) == pytest.approx(length, rel=0.03)


def test_many_clients_are_not_warned_and_few_are_told_how_many_would_do() -> None:
    (line,) = warn_clients(4.0, 20_000, rounds=10, clients=5)
    found = re.search(r"about (\d+) clients", line)
    assert found
    needed = int(found[1])
    assert (
        noise_share(4.0, 20_000, steps=10, units=needed)
        <= USEFUL
        < noise_share(4.0, 20_000, steps=10, units=needed - 1)
    )
    assert warn_clients(4.0, 20_000, rounds=10, clients=needed) == []
    edge = 4.0 * math.sqrt(20_000 / 10) / CHANCE
    assert warn_clients(4.0, 20_000, rounds=10, clients=math.ceil(edge)) == []
    assert warn_clients(4.0, 20_000, rounds=10, clients=math.floor(edge) - 1)


@pytest.mark.parametrize("name", ["dp-fedavg-client", "prism-client"])
@pytest.mark.parametrize(("clients", "warned"), [(5, True), (100_000, False)])
def test_a_client_level_run_says_it_before_it_starts(name: str, clients: int, warned: bool) -> None:
    """Five clients at epsilon 3 were at chance."""
    method = METHODS[name]
    task = Task("digits", (1, 8, 8), tuple("0123456789"), tuple(map(str, range(clients))), 287, model="convnet:32")
    rounds = method.settings().rounds
    sigma = account.calibrate(lambda s: Cost.gaussian(s, times=rounds, unit="client"), 3.0, 1e-5)
    assert method.advice is not None
    said = method.advice(method.settings(sigma=sigma), task)  # type: ignore[call-arg]
    assert [line.startswith("noise drowns") for line in said] == [True] * warned


def test_only_clients_that_are_asked_count() -> None:
    cfg = METHODS["dp-fedavg-client"].settings(sigma=4.0)  # type: ignore[call-arg]
    task = Task("x", (4,), ("a", "b"), tuple(map(str, range(100))), 10, model="logreg")
    assert auto.client_advice(cfg, task) == []
    few = Task("x", (4,), ("a", "b"), tuple(map(str, range(100))), 10, model="logreg", participation=0.05)
    assert auto.client_advice(cfg, few)


def test_a_run_on_records_says_how_many_more_of_them_would_do() -> None:
    assert warn_records(CHANCE, "gradients") == []
    (line,) = warn_records(4 * USEFUL, "gradients")
    assert "drowns the gradients" in line
    assert "about 4 times the records" in line
    assert warn_records(1.9, "means", chance=2.0) == []
