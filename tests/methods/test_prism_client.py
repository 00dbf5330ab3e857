"""prism-client: exact sums to the hub, which clips whole sites and adds its noise once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.hub import PrivateSum
from prismfl.core.method import State
from prismfl.core.payloads import Items
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from prismfl.rng import Key
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody

NAME = "prism-client"


def outcome(inbox: Mapping[str, Items], *, noise: int = 0, **changes: float) -> tuple[Items, Cost]:
    job = job_of(NAME, **changes)
    hub = PrivateSum(inbox, declared=3, noise=Key.seed(noise).noise())
    return job.method.server(job.settings, job.task, State(0, {}), hub, job.key), hub.meter.cost


def test_what_leaves_a_site_is_exact_and_in_units_of_the_declared_size() -> None:
    """24 declared records, of which 12 are there: the counts come to one half in all."""
    told = answer(NAME, records=some_records(12, seed=0))
    counts = told.leaves["statistics"].tensors["sums"][:, -1] / math.sqrt(0.05)
    assert counts.tolist() == pytest.approx([4 / 24] * 3, rel=1e-4)
    assert told.cost == Cost.non_private()


def test_a_site_of_the_declared_size_has_a_statistic_of_norm_at_most_one() -> None:
    told = answer(NAME).leaves["statistics"].tensors
    norm = math.sqrt(sum(float(t.double().square().sum()) for t in told.values()))
    assert 0.3 < norm <= 1.0


def test_it_is_the_sum_of_prism_without_noise_and_account() -> None:
    exact = answer("prism", sigma=0.0).leaves["statistics"].tensors
    own = answer(NAME).leaves["statistics"].tensors
    assert set(own) == {"moment", "sums"}
    for name, part in own.items():
        assert torch.allclose(24 * part, exact[name], atol=1e-4)


def test_a_site_without_records_sends_zeros_of_the_declared_shape() -> None:
    told = answer(NAME, records=nobody())
    assert told.shapes() == told.job.shapes
    assert not any(bool(t.any()) for t in told.leaves["statistics"].tensors.values())


def test_the_plan_is_one_gaussian_of_unit_client() -> None:
    assert job_of(NAME, sigma=0.8).plan() == Cost.gaussian(0.8, unit="client")
    told = answer(NAME)
    assert outcome({"site-0": told.leaves}, sigma=0.8)[1] == Cost.gaussian(0.8, unit="client")


def test_the_hub_makes_images_a_head_and_a_model() -> None:
    told = answer(NAME)
    items, _ = outcome(dict.fromkeys(("site-0", "site-1", "site-2"), told.leaves), sigma=0.1)
    assert set(items) == {"model", "synthetic", "head", "linear", "embeddings"}
    assert items["synthetic"].tensors["x"].shape == (9, 1, 8, 8)
    assert items["synthetic"].tensors["y"].tolist() == [0] * 3 + [1] * 3 + [2] * 3


def test_a_client_that_shouts_counts_as_one_client() -> None:
    """Its statistic is clipped to 1 as a whole, however many records it claims."""
    told = answer(NAME)
    loud = type(told.leaves["statistics"])({k: 1e3 * v for k, v in told.leaves["statistics"].tensors.items()})
    inbox = {"site-0": {"statistics": loud}}
    bounded = {"site-0": {"statistics": type(loud)({k: 1e6 * v for k, v in loud.tensors.items()})}}
    one, two = (outcome(box, sigma=0.1)[0]["head"].tensors for box in (inbox, bounded))
    assert all(torch.allclose(one[k], two[k], rtol=1e-3, atol=1e-3) for k in one)


def test_a_secure_sum_of_it_has_the_clip_as_its_bound() -> None:
    found = job_of(NAME, sigma=0.7, clip=0.9).summed()
    assert (found.item, found.bound, found.sigma) == ("statistics", 0.9, 0.7)
    assert found.tensors == ("moment", "sums")


@pytest.mark.parametrize("bad", [{"clip": 0.0}, {"rounds": 2}, {"sigma": -1.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(NAME, **bad)


def test_only_the_hub_gives_a_guarantee() -> None:
    assert METHODS[NAME].guarantee == "client"
