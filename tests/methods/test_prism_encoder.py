"""PRISM's public features: from public images and a public seed alone, the same for everybody, in the unit ball."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from prismfl.methods.prism.encoder import FeatureSettings, encoder
from tests.laws.world import some_records
from tests.methods.tiny import job_of


def settings_of(**changes: float) -> FeatureSettings:
    found = job_of("prism-head", **changes).settings
    assert isinstance(found, FeatureSettings)
    return found


CFG, TASK = settings_of(), job_of("prism-head").task
X = some_records(9, seed=4).x


def test_coordinates_lie_in_the_unit_ball_along_the_asked_directions() -> None:
    found = encoder(CFG, TASK).coordinates(X)
    assert found.shape == (9, 12)
    assert float(found.norm(dim=1).max()) <= 1 + 1e-5


def test_an_image_has_its_own_coordinates_whoever_lies_beside_it() -> None:
    enc = encoder(CFG, TASK)
    many = X.repeat(10, 1, 1, 1)
    assert torch.allclose(enc.coordinates(many)[:9], enc.coordinates(X), atol=1e-5)


def test_noise_and_shares_do_not_change_the_features() -> None:
    one, two = (encoder(settings_of(sigma=s, share_means=m), TASK) for s, m in ((1.0, 0.2), (9.0, 0.9)))
    assert torch.equal(one.coordinates(X), two.coordinates(X))


@pytest.mark.parametrize("change", [{"bank_seed": 1}, {"atoms": 5}, {"power": 0.1}])
def test_feature_settings_do(change: dict[str, float]) -> None:
    other = encoder(settings_of(**change), TASK)
    assert not torch.equal(other.coordinates(X), encoder(CFG, TASK).coordinates(X))


def test_other_public_images_make_other_features() -> None:
    assert TASK.public is not None
    other = encoder(CFG, replace(TASK, public=TASK.public.flip(3)))
    assert not torch.equal(other.coordinates(X), encoder(CFG, TASK).coordinates(X))


def test_it_is_made_once() -> None:
    assert encoder(CFG, TASK) is encoder(CFG, TASK)
    assert isinstance(CFG, FeatureSettings)
