"""PRISM's automatic settings: from public numbers and public images, at the noise of the run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from prismfl.core.method import Chosen, Task, Wanted
from prismfl.data import load_public
from prismfl.methods import METHODS
from prismfl.methods.prism import auto, rehearsal
from prismfl.methods.prism.statistics import row_layout

CHEAP = {"atoms": 16, "pool": 2}


@cache
def public(count: int = 400) -> torch.Tensor:
    return load_public("procedural-mixed", shape=(1, 12, 12), count=count, key_seed=0).images


def task(**changes: Any) -> Task:
    sites = tuple(f"site-{i}" for i in range(changes.pop("sites", 3)))
    facts = Task("own", (1, 12, 12), ("a", "b", "c"), sites, 1000, public=public())
    return replace(facts, **changes)


@cache
def chosen(records: int = 1000, epsilon: float = 1.0, secure: bool = False, sites: int = 3) -> Chosen:
    return auto.auto(Wanted(CHEAP, task(records=records, sites=sites), epsilon, secure))


def test_more_noise_never_makes_a_larger_release() -> None:
    ranks = [chosen(records=records).settings["rank"] for records in (100, 1000, 100_000)]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1]
    assert chosen(epsilon=0.2).settings["rank"] <= chosen(epsilon=5.0).settings["rank"]


def test_few_noisy_records_get_few_directions_and_networks() -> None:
    found = chosen(records=20, epsilon=0.2).settings
    assert found["rank"] == rehearsal.RANKS[0]
    assert found["networks"] == 0
    assert found["labels"] == "soft"  # what was not moved does not show its class
    assert chosen(records=1000, epsilon=0.3).settings["networks"] == 4
    assert chosen(records=100_000, epsilon=5.0).settings["networks"] == 32


def test_a_second_moment_that_noise_would_hide_is_not_asked_for() -> None:
    few, many = chosen(records=100), chosen(records=100_000)
    assert (few.settings["covariance"], few.settings["share_covariance"]) == (0, 0.0)
    assert "noise would hide" in few.words[1]
    assert many.settings["covariance"] == many.settings["rank"]
    assert "noise would hide" not in many.words[1]
    asked = auto.auto(Wanted({**CHEAP, "covariance": 5}, task(records=100), 1.0)).settings
    assert asked["share_covariance"] > 0  # somebody wants it


def test_one_noise_for_all_hides_less_than_one_a_site() -> None:
    apart, together = (chosen(records=60, sites=20, secure=secure).settings["covariance"] for secure in (False, True))
    assert (apart, together > 0) == (0, True)


def test_a_secure_sum_has_one_noise_and_so_a_larger_release() -> None:
    apart, together = (chosen(records=30, sites=20, secure=secure).settings["rank"] for secure in (False, True))
    assert together > apart


def test_the_middle_of_the_ranks_that_are_nearly_as_good_is_taken() -> None:
    scores = {16: 70.0, 32: 78.0, 64: 80.0, 128: 80.5, 256: 70.0}
    assert rehearsal.pick(scores) == 64
    assert rehearsal.pick({**scores, 256: 79.0, 512: 78.0}) == 128
    assert rehearsal.pick(scores, chance=75.0) == 16  # all of it is noise


@pytest.mark.parametrize("rank", [7, 70, 5000])
def test_a_given_rank_is_played_even_if_it_is_more_than_the_features_have(rank: int) -> None:
    found = auto.auto(Wanted({**CHEAP, "rank": rank}, task(), 1.0))
    assert "rank" not in found.settings
    assert f"rank {min(rank, 128)}:" in found.words[0]


def test_what_is_given_is_never_touched() -> None:
    given = {**CHEAP, "rank": 20, "networks": 3, "images": 2, "share_means": 0.3, "deliver": "network"}
    found = auto.auto(Wanted(given, task(), 1.0))
    assert not given.keys() & found.settings.keys()
    METHODS["prism"].settings(**{**found.settings, **given})


@pytest.mark.parametrize("name", ["prism", "prism-head", "prism-client"])
def test_every_choice_is_a_setting_of_the_method(name: str) -> None:
    method = METHODS[name]
    assert method.auto is not None
    found = method.auto(Wanted(CHEAP, task(), 1.0))
    settings = method.settings(**{**CHEAP, **found.settings, "sigma": 1.0})
    layout = row_layout(settings, task())  # type: ignore[arg-type]
    squares = layout.means**2 + layout.moment**2 + layout.nets**2 + layout.count**2
    assert squares == pytest.approx(1.0)


def test_without_public_images_the_defaults_are_used_and_that_is_said() -> None:
    found = auto.auto(Wanted({}, task(public=None), 1.0))
    assert found.settings == {}
    assert "no public images" in found.words[0]


def test_the_same_facts_give_the_same_choice() -> None:
    again = auto.auto(Wanted(CHEAP, task(), 1.0))
    assert again == chosen()


def test_a_cut_frame_is_the_frame_of_fewer_directions() -> None:
    from prismfl.methods.prism.encoder import encoder
    from prismfl.methods.prism.head import HeadConfig

    whole, few = (encoder(HeadConfig(rank=r, networks=0, **CHEAP), task()) for r in (30, 7))
    rows = ((whole.look(public()) - whole.frame.mean) / whole.frame.std) @ whole.frame.basis
    clip = float(rows[:, :7].norm(dim=1).quantile(0.0))
    cut = auto.cut(whole.frame, rows, rank=7, clip=clip)
    looked = few.look(public()[:20])
    assert torch.allclose(cut(looked), few.frame(looked), atol=1e-4)
    assert torch.allclose(cut.values, few.frame.values, rtol=1e-3)
    assert torch.allclose(cut.unit, few.frame.unit, rtol=1e-3)
