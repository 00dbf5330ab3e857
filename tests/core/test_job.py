"""What a job says of itself: what its sites pay, and which secure sums it has."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from prismfl.core.method import DPSettings
from prismfl.errors import BoundaryError, BudgetError, UserError
from prismfl.privacy.cost import Cost
from prismfl.privacy.shares import Rules, Secrecy
from tests.laws.world import make_job


def test_a_trusted_hub_is_no_guarantee_for_a_record() -> None:
    job = make_job("dp-fedavg-client")
    assert job.plan().private
    assert job.plan().unit == "client"
    assert not job.site_plan().private
    assert job.site_plan().unit == "record"
    assert job.round_cost(0, first=True) == job.site_plan()


def test_in_a_secure_sum_a_record_moves_twice_the_bound() -> None:
    job = replace(make_job("dp-fedavg-client", sigma=4.0), secure=Secrecy(2))
    ((mechanism, times),) = job.site_plan().branches[0]
    assert (mechanism.noise, times) == (job.summed().sigma / 2, job.settings.rounds)


def test_rounds_beyond_the_plan_are_refused() -> None:
    job = make_job("dp-fedavg")
    for round in (-1, job.settings.rounds):
        with pytest.raises(BudgetError, match="not in the plan"):
            job.round_cost(round, first=True)


def test_a_run_without_secure_sums_has_no_rules_for_one() -> None:
    with pytest.raises(BoundaryError, match="no secure sums"):
        make_job("prism").sum_rules(0)


def test_a_secure_sum_asks_every_site_and_a_method_that_sums() -> None:
    with pytest.raises(UserError, match="participation 1"):
        replace(make_job("prism", participation=0.5), secure=Secrecy(2))
    with pytest.raises(UserError, match="has no secure sum"):
        replace(make_job("fedavg"), secure=Secrecy(2))


@pytest.mark.parametrize(
    ("bound", "length", "sigma"), [(0.0, 1, 1.0), (1.0, 0, 1.0), (1.0, 1, -1.0), (math.inf, 1, 1.0)]
)
def test_a_secure_sum_of_no_sense_is_refused(bound: float, length: int, sigma: float) -> None:
    with pytest.raises(UserError, match="for the secure sum"):
        Rules.fit(("a", "b"), Secrecy(2), length=length, bound=bound, sigma=sigma, label="run/0")


def test_a_plan_samples_at_the_doors_rate() -> None:
    task = make_job("dp-fedavg", records=40).task
    assert task.gaussian(2.0, batch=10, times=3) == Cost.gaussian(2.0, rate=0.25, times=3)
    assert task.gaussian(2.0, batch=100) == task.gaussian(2.0) == Cost.gaussian(2.0)


def test_noise_is_known_before_the_run() -> None:
    assert DPSettings(sigma=0.0).noise == 0.0
    with pytest.raises(ValueError, match="resolved"):
        _ = DPSettings().noise


def test_runs_through_other_encoders_share_no_simulated_noise() -> None:
    class Seen:
        name, layers, digest = "x", ("rows",), "0" * 64

    job = make_job("prism-head")
    through = replace(job, task=replace(job.task, encoder=Seen()))  # type: ignore[arg-type]
    assert through.digest != job.digest
