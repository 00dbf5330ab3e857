"""prism-local: the synthesis on each site, images that leave once, and a share of the budget for DP-SGD."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import OwnSite, State
from prismfl.core.payloads import SyntheticSet
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody, served

NAME = "prism-local"


def test_without_a_share_for_training_it_is_one_gaussian() -> None:
    assert job_of(NAME, sigma=1.4, share=0.0, centring=0.0).plan() == Cost.gaussian(1.4)
    assert answer(NAME, sigma=1.4, share=0.0, centring=0.0).cost == Cost.gaussian(1.4)


def test_a_share_for_training_raises_the_noise_of_the_statistics_and_adds_steps() -> None:
    """Share 0.36 leaves 0.64: sigma over 0.8. Steps: sigma sqrt(steps / share), times the rate, at least one half."""
    job = job_of(NAME, sigma=2.0, share=0.36, centring=0.0, sgd_steps=4, sgd_batch=12.0)
    steps = 2.0 * math.sqrt(4 / 0.36) * 0.5
    assert job.plan() == Cost.gaussian(2.5) + Cost.gaussian(steps, 0.5, times=4)
    assert answer(NAME, sigma=2.0, share=0.36, centring=0.0, sgd_steps=4, sgd_batch=12.0).cost == job.plan()


def test_a_step_never_has_less_noise_than_a_half() -> None:
    job = job_of(NAME, sigma=0.01, share=0.3, sgd_steps=2, sgd_batch=8.0)
    assert max(m.noise for m, _ in job.plan().branches[0] if m.rate < 1) == 0.5


def test_images_of_every_declared_class_leave_with_soft_labels() -> None:
    for records in (None, nobody(), some_records(24, seed=3, classes=(1,))):
        told = answer(NAME, records=records, images=2)
        assert told.shapes() == told.job.shapes
    assert told.job.shapes == {"synthetic": {"x": ("uint8", (6, 1, 8, 8)), "y": ("float32", (6, 3))}}


def test_a_label_is_half_its_class_and_weighs_as_much_as_the_class_is_trusted() -> None:
    made = answer(NAME, sigma=0.2, share=0.0, images=2).leaves["synthetic"].tensors["y"]
    own = torch.arange(3).repeat_interleave(2)
    mass = made.sum(1)
    assert bool((made[torch.arange(6), own] >= 0.5 * mass - 1e-6).all())
    assert bool(((mass > 0) & (mass <= 1)).all())


def test_images_of_a_class_that_a_site_lacks_weigh_next_to_nothing() -> None:
    made = answer(NAME, sigma=0.5, share=0.0, images=2, records=some_records(24, seed=0, classes=(0, 1)))
    mass = made.leaves["synthetic"].tensors["y"].sum(1).reshape(3, 2).mean(1)
    assert float(mass[2]) < 0.6 * float(mass[:2].min())


def test_the_server_pools_all_sets() -> None:
    items = served(NAME, answer(NAME, images=2), images=2)
    pooled = items["synthetic"]
    assert len(pooled.tensors["y"]) == 3 * 6
    assert items["model"].shapes() == METHODS["fedavg"].shapes(settings("fedavg"), job_of(NAME).task)["model"]


def test_a_site_that_shouts_is_made_as_light_as_twice_the_median() -> None:
    job = job_of(NAME, images=2)
    quiet = answer(NAME, images=2).leaves["synthetic"].tensors
    loud = SyntheticSet.of(quiet["x"], 100.0 * quiet["y"])
    inbox = {
        "site-0": {"synthetic": SyntheticSet.of(quiet["x"], quiet["y"])},
        "site-1": {"synthetic": SyntheticSet.of(quiet["x"], quiet["y"])},
        "site-2": {"synthetic": loud},
    }
    pooled = job.method.server(job.settings, job.task, State(0, {}), inbox, job.key)["synthetic"].tensors["y"]
    assert torch.allclose(pooled[12:], 2.0 * quiet["y"], rtol=1e-4)
    assert torch.equal(pooled[:6], quiet["y"])


def test_every_site_ends_with_a_model_of_its_own() -> None:
    job = job_of(NAME, images=2)
    items = served(NAME, answer(NAME, images=2), images=2)
    assert job.method.adopt is not None
    one, two = (
        job.method.adopt(
            job.settings, State(1, items), OwnSite("site-0", some_records(9, seed=s), {}, job.task), job.key
        )["model"].digest
        for s in (1, 2)
    )
    assert one != two


def test_labels_that_do_not_belong_to_their_places_are_told() -> None:
    job, honest = job_of(NAME, images=2), answer(NAME, images=2).leaves["synthetic"].tensors
    possible = METHODS[NAME].possible
    assert possible is not None

    def why(y: torch.Tensor) -> str | None:
        items = {"synthetic": SyntheticSet.of(honest["x"], y)}
        return possible(job.settings, job.task, State(0, {}), "site-0", items)

    assert why(honest["y"]) is None
    assert why(torch.eye(3)[torch.tensor([2, 2, 1, 1, 0, 0])]) == "labels of images are not those of their places"
    uneven = torch.eye(3).repeat_interleave(2, 0) * torch.tensor([0.2, 0.9] * 3)[:, None]
    assert why(uneven) == "images of one class are trusted differently"


@pytest.mark.parametrize("bad", [{"share": 1.0}, {"share": -0.1}, {"rounds": 2}, {"aggregate": "median"}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(NAME, **bad)
