"""Fidelity of made images: known answers on points, and the order one would see by eye."""

from __future__ import annotations

import pytest
import torch

from prismfl.core.payloads import SyntheticSet
from prismfl.errors import UserError
from prismfl.metrics.fidelity import Features, choose_by_synthetic, fidelity, frechet, learn_features
from prismfl.nets.classifier import build
from prismfl.rng import Key
from tests.laws.world import some_records

PIXELS = Features(torch.nn.Flatten(), "the pixels themselves", 0.0)


def cloud(n: int, seed: int, *, shift: float = 0.0, spread: float = 1.0) -> torch.Tensor:
    return shift + spread * torch.randn(n, 4, generator=Key.seed(seed).torch(), dtype=torch.float64)


def test_frechet_of_gaussians_is_the_formula() -> None:
    """Shift 3 in each of 4 axes and spread 1 to 2: 4 * (9 + 1)."""
    assert frechet(cloud(200_000, 0), cloud(200_000, 1, shift=3.0, spread=2.0)) == pytest.approx(40.0, rel=0.01)
    assert frechet(cloud(1000, 0), cloud(1000, 0)) == pytest.approx(0.0, abs=1e-9)


def test_precision_falls_with_wrong_images_and_recall_with_missing_ones() -> None:
    real = torch.cat([cloud(200, 0), cloud(200, 1, shift=20.0)])[:, None, None, :]
    one_mode = cloud(400, 2)[:, None, None, :]
    found = fidelity(PIXELS, real=real, made=one_mode)
    assert found.precision > 0.9
    assert found.recall == pytest.approx(0.5, abs=0.1)
    assert found.coverage == pytest.approx(0.5, abs=0.1)
    half_wrong = torch.cat([cloud(200, 2), cloud(200, 3, shift=-50.0)])[:, None, None, :]
    assert fidelity(PIXELS, real=real, made=half_wrong).precision == pytest.approx(0.5, abs=0.1)
    same = fidelity(PIXELS, real=real, made=torch.cat([cloud(200, 4), cloud(200, 5, shift=20.0)])[:, None, None, :])
    assert min(same.precision, same.recall, same.coverage) > 0.85
    assert same.density == pytest.approx(1.0, abs=0.15)


def test_learned_features_put_noise_far_away() -> None:
    records = some_records(300, seed=0)
    features = learn_features(records.x, records.y, classes=3, key=Key.seed(0), model="convnet:4", epochs=3)
    assert "300 real" in features.name
    real = some_records(200, seed=1).x
    near = fidelity(features, real=real, made=some_records(200, seed=2).x)
    far = fidelity(features, real=real, made=torch.rand(200, 1, 8, 8, generator=Key.seed(3).torch()))
    assert far.frechet > 5 * near.frechet
    assert near.coverage > far.coverage


def test_too_few_images_are_refused() -> None:
    with pytest.raises(UserError, match="more than 5 images"):
        fidelity(PIXELS, real=torch.rand(5, 1, 2, 2), made=torch.rand(50, 1, 2, 2))


def test_the_choice_is_made_on_synthetic_images() -> None:
    classifier, params = build("logreg", (1, 2, 2), 2, key=Key.seed(0))
    good = {k: torch.zeros_like(p) for k, p in params.items()}
    weight = next(k for k in good if k.endswith("weight"))
    good[weight][1] = 1.0
    bad = {k: -p for k, p in good.items()}
    x = torch.cat([-torch.ones(10, 1, 2, 2), torch.ones(10, 1, 2, 2)])
    held = SyntheticSet.of(x, torch.arange(2).repeat_interleave(10))
    assert choose_by_synthetic(classifier, [bad, good], held) is good
    assert choose_by_synthetic(classifier, [good, bad], held) is good
    with pytest.raises(UserError, match="none"):
        choose_by_synthetic(classifier, [], held)
