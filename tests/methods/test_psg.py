"""Private set generation: images fitted to noisy gradients, one release, every query charged."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import State
from prismfl.core.payloads import SyntheticSet
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody


@pytest.mark.parametrize(("networks", "stops"), [(1, 1), (2, 3)])
def test_the_plan_is_a_query_a_network_and_stop(networks: int, stops: int) -> None:
    job = job_of("psg", sigma=1.1, networks=networks, stops=stops, batch=18.0)
    assert job.plan() == Cost.gaussian(1.1, 18 / 72, times=networks * stops)
    told = answer("psg", sigma=1.1, networks=networks, stops=stops, batch=18.0)
    assert told.cost == job.plan()


def test_updates_of_the_images_are_free() -> None:
    once, often = (job_of("psg", sigma=1.1, updates=u).plan() for u in (1, 9))
    assert once == often


def test_images_of_every_declared_class_leave_whatever_the_site_holds() -> None:
    told = answer("psg-sites", records=some_records(24, seed=1, classes=(0,)), images=2)
    assert told.shapes() == told.job.shapes == {"images": {"x": ("float32", (6, 1, 8, 8)), "y": ("int64", (6,))}}
    assert told.leaves["images"].tensors["y"].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_site_without_records_makes_images_too() -> None:
    assert answer("psg-sites", records=nobody()).shapes() == job_of("psg-sites").shapes


def test_without_noise_the_images_follow_the_data() -> None:
    one, two = (
        answer("psg-sites", records=some_records(24, seed=s), sigma=0.0, noise=0).leaves["images"].digest
        for s in (1, 2)
    )
    assert one != two


def test_the_images_are_moved_from_where_they_began() -> None:
    told = answer("psg", sigma=0.1, image_lr=1.0)
    still = answer("psg", sigma=0.1, image_lr=1e-12)
    gap = told.leaves["images"].tensors["x"] - still.leaves["images"].tensors["x"]
    assert float(gap.norm()) > 1e-3


def test_the_server_trains_on_everybodys_images() -> None:
    job = job_of("psg-sites")
    made = {site: answer("psg-sites", noise=i).leaves for i, site in enumerate(job.task.sites)}
    items = job.method.server(job.settings, job.task, State(0, {}), made, job.key)
    pooled = items["synthetic"]
    assert isinstance(pooled, SyntheticSet)
    assert len(pooled.y) == 3 * 6
    assert pooled.y.bincount().tolist() == [6, 6, 6]
    assert items["model"].shapes() == METHODS["fedavg"].shapes(settings("fedavg"), job.task)["model"]


def test_pooled_and_at_sites_are_the_same_method() -> None:
    assert METHODS["psg"].pooled
    assert not METHODS["psg-sites"].pooled
    assert METHODS["psg"].client is METHODS["psg-sites"].client


def test_wrong_labels_and_wild_pixels_are_told() -> None:
    job = job_of("psg-sites")
    possible, honest = METHODS["psg"].possible, answer("psg-sites").leaves["images"].tensors
    assert possible is not None

    def why(x: torch.Tensor, y: torch.Tensor) -> str | None:
        return possible(job.settings, job.task, State(0, {}), "site-0", {"images": SyntheticSet.of(x, y)})

    assert why(honest["x"], honest["y"]) is None
    assert why(honest["x"], honest["y"].flip(0)) == "labels are not the declared ones"
    assert why(honest["x"] + 1e7, honest["y"]) == "'x' has numbers beyond 1e+06, which its training cannot reach"


@pytest.mark.parametrize(
    ("classes", "line"),
    [
        (((0,),), "Expected public_classes of 3 sites, got 1."),
        (((0,), (1,), (0, 1)), "Expected public_classes of one size > 0, so that all releases look alike, got sizes"),
        (((0,), (1,), (7,)), "Expected public_classes out of 0 to 2, each once, got [7]."),
    ],
)
def test_declared_classes_that_cannot_be_are_refused(classes: tuple[tuple[int, ...], ...], line: str) -> None:
    job = job_of("psg-sites", public_classes=classes)
    with pytest.raises(UserError) as error:
        job.method.init(job.settings, job.task, job.key)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize("bad", [{"rounds": 2}, {"networks": 0}, {"momentum": 1.0}, {"clip": 0.0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("psg", **bad)
