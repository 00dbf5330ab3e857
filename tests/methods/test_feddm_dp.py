"""FedDM with a guarantee: one noisy sum a network, images of every declared class."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.hand import settings
from tests.methods.record_play import watch_noise
from tests.methods.tiny import answer, job_of, nobody

NAME = "feddm-dp"


@pytest.mark.parametrize(("networks", "rounds"), [(1, 1), (3, 2)])
def test_the_plan_is_one_sampled_gaussian_a_network_and_round(networks: int, rounds: int) -> None:
    job = job_of(NAME, sigma=1.6, networks=networks, rounds=rounds, batch=12.0)
    assert job.plan() == Cost.gaussian(1.6, 0.5, times=networks * rounds)
    told = answer(NAME, sigma=1.6, networks=networks, rounds=rounds, batch=12.0)
    assert told.cost == Cost.gaussian(1.6, 0.5, times=networks)


def test_what_leaves_has_the_declared_shape_whatever_the_site_holds() -> None:
    for records in (None, nobody(), some_records(24, seed=2, classes=(0,))):
        told = answer(NAME, records=records)
        assert told.shapes() == told.job.shapes
        assert set(told.leaves["images"].tensors["y"].tolist()) == {0, 1, 2}


def test_a_records_share_of_the_sum_is_its_features_and_a_tenth_for_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has norm 1 and lies in the block of its class: 24 records, eight of each."""
    seen = watch_noise(monkeypatch)
    answer(NAME, sigma=1.0, networks=1, batch=24.0)
    ((total, bound, sigma),) = seen
    assert (bound, sigma) == (1.0, 1.0)
    counts = total.reshape(3, -1)[:, -1] / 0.1**0.5
    assert counts.tolist() == pytest.approx([8.0, 8.0, 8.0], rel=1e-4)


def test_one_record_moves_the_sum_by_at_most_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, whole = watch_noise(monkeypatch), some_records(24, seed=0)
    for records in (whole, whole.take(torch.arange(1, 24))):
        answer(NAME, records=records, sigma=1.0, networks=1, batch=24.0)
    gap = float((seen[0][0] - seen[1][0]).norm())
    assert gap == pytest.approx(1.0, rel=1e-4)


def test_without_noise_the_images_follow_the_data() -> None:
    one, two = (
        answer(NAME, records=some_records(24, seed=s), sigma=0.0, batch=24.0).leaves["images"].digest for s in (1, 2)
    )
    assert one != two


def test_what_it_remembers_is_what_it_sent() -> None:
    told = answer(NAME)
    assert told.stays["images"].digest == told.leaves["images"].digest


def test_it_differs_from_feddm_by_its_guarantee() -> None:
    assert METHODS[NAME].guarantee == "site"
    assert METHODS["feddm"].guarantee is None
    assert METHODS[NAME].server is METHODS["feddm"].server


@pytest.mark.parametrize("bad", [{"networks": 0}, {"batch": 0.0}, {"sigma": -1.0}, {"images": 0}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings(NAME, **bad)
