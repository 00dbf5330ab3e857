"""DDP-beta-VAE as a method: 3DGL with all records in one place, and sigma solved over the whole plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismfl.methods import METHODS
from prismfl.methods.generators import ddp_vae
from prismfl.methods.generators.threedgl import Config
from prismfl.privacy import account
from tests.methods.tiny import job_of


def test_it_is_3dgl_in_one_place() -> None:
    one, other = METHODS["ddp-vae"], METHODS["3dgl"]
    assert (one.client, one.server, one.plan) == (other.client, other.server, other.plan)
    assert one.pooled
    assert not other.pooled


def test_at_one_site_it_costs_what_3dgl_costs_there() -> None:
    pooled = job_of("ddp-vae", sigma=1.5)
    alone = replace(job_of("3dgl", sigma=1.5), task=pooled.task)
    assert pooled.plan() == alone.plan()
    assert pooled.plan().private


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_solved_sigma_spends_epsilon_and_no_more(epsilon: float) -> None:
    job = job_of("ddp-vae")
    assert isinstance(job.settings, Config)
    solved = ddp_vae.solve(job.settings, job.task, epsilon)
    spent = account.epsilon(job.method.plan(solved, job.task), job.task.delta)
    assert 0.97 * epsilon <= spent <= epsilon


def test_more_privacy_is_more_noise() -> None:
    job = job_of("ddp-vae")
    assert isinstance(job.settings, Config)
    strict, lax = (ddp_vae.solve(job.settings, job.task, e).noise for e in (0.5, 5.0))
    assert strict > lax > 0
