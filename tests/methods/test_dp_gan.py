"""DP-GAN: a noisy histogram and the discriminator's steps are all that is asked of the records."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from prismfl.core.method import State
from prismfl.core.payloads import Synthesizer, SyntheticSet
from prismfl.errors import UserError
from prismfl.methods import METHODS
from prismfl.privacy.cost import Cost
from tests.laws.world import make_job
from tests.methods.hand import settings
from tests.methods.tiny import answer, job_of, nobody, served


def test_the_plan_is_one_histogram_and_the_steps_of_the_discriminator() -> None:
    job = job_of("dp-gan", sigma=1.2, steps=3, batch=6.0, count_factor=10.0)
    assert job.plan() == Cost.gaussian(12.0) + Cost.gaussian(1.2, 0.25, times=3)
    assert answer("dp-gan", sigma=1.2, steps=3, batch=6.0, count_factor=10.0).cost == job.plan()


def test_the_generators_own_steps_are_free() -> None:
    one, two = (job_of("dp-gan", sigma=1.2, maker_steps=n, made_batch=n).plan() for n in (1, 7))
    assert one == two


@pytest.mark.parametrize("share", ["generator", "samples"])
def test_what_leaves_has_the_declared_shape_whatever_the_site_holds(share: str) -> None:
    told, empty = answer("dp-gan", share=share), answer("dp-gan", share=share, records=nobody())
    assert told.shapes() == empty.shapes() == told.job.shapes


def test_samples_are_bytes_divided_among_the_sites() -> None:
    made = answer("dp-gan", share="samples", samples=10).leaves["synthetic"]
    assert made.tensors["x"].dtype == torch.uint8
    assert len(made.tensors["x"]) == 4  # 10 over three sites, rounded up


def test_the_counts_are_the_class_sizes_under_little_noise() -> None:
    """24 records, eight of each class; the histogram's noise is a twentieth of a thousandth."""
    told = answer("dp-gan", sigma=1e-3, count_factor=0.05)
    assert torch.allclose(told.leaves["generator"].tensors["counts"], torch.full((3,), 8.0), atol=1e-2)


def test_the_generator_is_drawn_from_for_the_classes_that_are_there() -> None:
    told = answer("dp-gan", sigma=1e-3, count_factor=0.05)
    items = served("dp-gan", told, sigma=1e-3, count_factor=0.05, samples=36)
    made = items["synthetic"]
    assert isinstance(made, SyntheticSet)
    assert made.y.bincount(minlength=3).tolist() == [12, 12, 12]
    assert 0.0 <= float(made.x.min()) <= float(made.x.max()) <= 1.0


def test_training_that_runs_away_is_charged_in_full_and_says_so_by_sizes_of_zero() -> None:
    told = answer("dp-gan", lr=3e38, sigma=1.0, steps=3)
    assert told.cost == told.job.plan()
    assert not told.leaves["generator"].tensors["counts"].any()
    possible = METHODS["dp-gan"].possible
    assert possible is not None
    why = possible(told.job.settings, told.job.task, State(0, {}), "site-0", told.leaves)
    assert why == "its training has stopped at weights that are not finite, and was charged; lower lr"


def test_weights_that_no_training_reaches_are_told() -> None:
    told, possible = answer("dp-gan", sigma=1.0), METHODS["dp-gan"].possible
    assert possible is not None
    assert possible(told.job.settings, told.job.task, State(0, {}), "site-0", told.leaves) is None
    wild = {k: t if k == "counts" else t + 1e3 for k, t in told.leaves["generator"].tensors.items()}
    items = {**told.leaves, "generator": Synthesizer(wild)}
    why = possible(told.job.settings, told.job.task, State(0, {}), "site-0", items)
    assert why is not None
    assert "which its training cannot reach" in why


def test_the_words_that_travel_are_public() -> None:
    job = job_of("dp-gan")
    assert answer("dp-gan").leaves["generator"].spec == job.specs("site-0")["generator"]
    assert job.specs("site-0") == {"generator": {"kind": "dp-gan", "classes": ["a", "b", "c"]}}


@pytest.mark.parametrize("shape", [(1, 8, 12), (1, 6, 6), (1, 10, 10)])
def test_pictures_that_it_cannot_draw_are_refused_from_public_facts(shape: tuple[int, ...]) -> None:
    job = make_job("dp-gan", shape=shape)
    with pytest.raises(UserError, match=r"^Image generators need "):
        job.method.init(job.settings, job.task, job.key)


@pytest.mark.parametrize("bad", [{"rounds": 2}, {"width": 3}, {"clip": 0.0}, {"share": "both"}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        settings("dp-gan", **bad)
