"""What PRISM releases, once: class sums, counts and a second moment under one noise; and what no site can have sent."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from prismfl.core.method import State
from prismfl.core.payloads import Statistics
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from tests.laws.world import make_job, some_records
from tests.methods.tiny import answer, job_of, nobody

NAME = "prism-head"
WIDTH = 12 + 3 * 8 + 1  # rank, three networks of eight features, the count
# Shares 0.2 means, 0.45 moments, 0.3 networks, 0.05 count: they sum to one.
COUNT = math.sqrt(0.05)


def test_one_exchange_is_one_gaussian_of_the_whole_budget() -> None:
    assert job_of(NAME, sigma=1.6).plan() == Cost.gaussian(1.6)
    assert answer(NAME, sigma=1.6).cost == Cost.gaussian(1.6)


def test_equal_exchanges_have_equal_parts_of_the_squared_budget() -> None:
    job = job_of(NAME, sigma=1.0, rounds=4)
    assert job.plan() == Cost.gaussian(2.0, times=4)
    assert job.round_cost(3, first=False) == Cost.gaussian(2.0)


def test_adaptive_exchanges_double_theirs() -> None:
    """Parts 1, 2 and 4 of 7: the noise is sigma over their roots."""
    job = job_of(NAME, sigma=1.0, rounds=3, budget="adaptive")
    costs = [job.round_cost(r, first=r == 0) for r in range(3)]
    assert costs == [Cost.gaussian(math.sqrt(7 / part)) for part in (1, 2, 4)]
    assert job.plan() == costs[0] + costs[1] + costs[2]


def test_what_leaves_has_the_declared_shape_whatever_the_site_holds() -> None:
    for records in (None, nobody(), some_records(24, seed=3, classes=(1,))):
        told = answer(NAME, records=records)
        assert told.shapes() == told.job.shapes
    assert told.job.shapes["statistics"] == {
        "moment": ("float32", (8 * 9 // 2,)),
        "spent": ("float32", (1,)),
        "sums": ("float32", (3, WIDTH)),
    }


def test_without_noise_the_count_is_that_of_each_class() -> None:
    """A record's row has norm at most 1 whatever it is, so none is clipped and the counts are exact."""
    sums = answer(NAME, sigma=0.0, records=some_records(20, seed=0, classes=(0, 0, 2))).leaves["statistics"]
    counts = sums.tensors["sums"][:, -1] / COUNT
    assert counts.tolist() == pytest.approx([14.0, 0.0, 6.0], abs=1e-3)
    assert torch.count_nonzero(sums.tensors["sums"][1]) == 0


def test_a_site_without_records_sends_its_noise() -> None:
    told = answer(NAME, records=nobody(), sigma=2.0).leaves["statistics"].tensors
    drawn = torch.cat([told["sums"].flatten(), told["moment"]])
    assert float(drawn.std()) == pytest.approx(2.0, rel=0.2)


def test_a_later_exchange_is_joined_by_the_parts_of_the_budget() -> None:
    first = answer(NAME, sigma=0.0, rounds=2)
    second = answer(NAME, sigma=0.0, rounds=2, round=1, memory=first.stays)
    spent = [float(a.leaves["statistics"].tensors["spent"]) for a in (first, second)]
    assert spent == pytest.approx([0.5, 1.0])
    a, b = (t.leaves["statistics"].tensors["sums"] for t in (first, second))
    assert torch.allclose(a, b, atol=1e-5)  # twice the same exact sums
    assert second.stays["statistics"].digest == second.leaves["statistics"].digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {**t, "spent": torch.tensor([0.3])}, "it says that 0.3 of the budget is spent"),
        (lambda t: {**t, "sums": t["sums"] * 1e4}, "where 24 a site are declared"),
        (lambda t: {**t, "moment": t["moment"] + 1e4}, "second moments are larger than its counts allow"),
    ],
)
def test_statistics_that_no_site_can_have_are_told(change: object, words: str) -> None:
    job, honest = job_of(NAME), answer(NAME).leaves["statistics"].tensors
    possible = METHODS[NAME].possible
    assert possible is not None
    assert callable(change)
    assert possible(job.settings, job.task, State(0, {}), "site-0", {"statistics": Statistics(honest)}) is None
    lie = {"statistics": Statistics(change(honest))}
    why = possible(job.settings, job.task, State(0, {}), "site-0", lie)
    assert why is not None
    assert words in why


def test_a_secure_sum_is_one_exchange() -> None:
    job = job_of(NAME, sigma=1.5)
    found = job.summed()
    assert (found.item, found.bound, found.sigma, found.tensors) == ("statistics", 1.0, 1.5, ("moment", "sums"))
    with pytest.raises(UserError, match=r"^PRISM's secure sum is one exchange: expected rounds = 1, got 2\.$"):
        job_of(NAME, rounds=2).summed()


@pytest.mark.parametrize("name", ["prism", "prism-head", "prism-local", "prism-client"])
def test_images_too_small_for_the_features_are_refused_before_the_charge(name: str) -> None:
    job = make_job(name, model="logreg")
    for shape in ((1, 1, 1), (3, 7, 9)):
        words = f"at least 8 pixels a side, got {shape[1]}x{shape[2]}; declare image_size=8"
        with pytest.raises(UserError, match=words):
            job.method.init(job.settings, replace(job.task, shape=shape), Key.seed(0))
