"""FedEM with a guarantee: the cost is DP-SGD's, whatever the perturbation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import State
from prismfl.core.payloads import Gradient
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import Answer, answer, job_of, nobody

FREE: dict[str, Any] = {"sigma": 0.0, "clip": math.inf, "batch": 24.0}


def flat(told: Answer) -> torch.Tensor:
    return torch.cat([t.flatten() for t in told.leaves["gradient"].tensors.values()])


def test_without_perturbation_noise_and_clip_it_is_the_exact_mean_gradient() -> None:
    """Radius 0 and no iteration leave the records where they are; a rate of 1 takes all of them."""
    private = answer("fedem-dp", iterations=0, rho_max=0.0, start="zero", **FREE)
    exact = answer("fedsgd", batch=24)
    assert torch.allclose(flat(private), flat(exact), atol=1e-6)


def test_the_perturbation_changes_the_gradient() -> None:
    moved = answer("fedem-dp", iterations=2, rho_max=16.0, **FREE)
    still = answer("fedem-dp", iterations=0, rho_max=0.0, start="zero", **FREE)
    assert float((flat(moved) - flat(still)).norm()) > 1e-4


@pytest.mark.parametrize("iterations", [0, 3])
def test_the_plan_is_one_sampled_gaussian_a_round_whatever_the_perturbation(iterations: int) -> None:
    job = job_of("fedem-dp", sigma=1.7, rounds=5, batch=6.0, iterations=iterations)
    assert job.plan() == Cost.gaussian(1.7, 6 / 24, times=5)
    assert answer("fedem-dp", sigma=1.7, rounds=5, batch=6.0, iterations=iterations).cost == Cost.gaussian(1.7, 0.25)


def test_one_record_moves_the_sum_by_no_more_than_the_clip() -> None:
    whole = some_records(24, seed=0)
    told = [
        answer("fedem-dp", records=r, iterations=2, sigma=0.0, clip=0.05, batch=24.0)
        for r in (whole, whole.take(torch.arange(23)))
    ]
    gap = float((flat(told[0]) - flat(told[1])).norm()) * 24
    assert 0.0 < gap <= 0.05 * (1 + 1e-5)


def test_a_site_without_records_sends_noise_of_the_same_shape() -> None:
    told = answer("fedem-dp", records=nobody(), sigma=2.0, clip=0.5, batch=12.0)
    assert told.shapes() == told.job.shapes
    assert float(flat(told).std()) == pytest.approx(2.0 * 0.5 / 12, rel=0.15)


def test_a_gradient_that_no_clipped_records_make_is_told() -> None:
    job = job_of("fedem-dp", sigma=1.0, clip=0.5)
    possible = METHODS["fedem-dp"].possible
    assert possible is not None
    honest = answer("fedem-dp", sigma=1.0, clip=0.5).leaves
    assert possible(job.settings, job.task, State(0, {}), "site-0", honest) is None
    huge = {"gradient": Gradient({k: t + 1e4 for k, t in honest["gradient"].tensors.items()})}
    why = possible(job.settings, job.task, State(0, {}), "site-0", huge)
    assert why is not None
    assert "and clipped ones are" in why


def test_images_only() -> None:
    assert METHODS["fedem-dp"].kinds == ("image",)


def test_a_least_perturbation_over_the_largest_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"Expected rho_min <= rho_max, got 9\.0 and 8\.0"):
        settings("fedem-dp", rho_min=9.0)


@pytest.mark.parametrize("bad", [{"clip": 0.0}, {"batch": 0.0}, {"iterations": -1}, {"norm": "l1"}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("fedem-dp", **bad)
