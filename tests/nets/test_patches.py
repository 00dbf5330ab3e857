"""Patch features: unit atoms, codes that do not see brightness, coordinates inside the unit ball."""

from __future__ import annotations

import pytest
import torch

from prismfl.nets.patches import Patches, fit_frame, learn_patches
from prismfl.rng import Key

PUBLIC = torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def learnt(images: torch.Tensor = PUBLIC, *, colour: int = 0, seed: int = 0) -> Patches:
    return learn_patches(images, atoms=5, side=3, stride=1, pool=2, colour=colour, key=Key.seed(seed), samples=500)


def test_atoms_have_norm_one_and_features_their_number() -> None:
    patches = learnt()
    assert torch.allclose(patches.atoms.norm(dim=1), torch.ones(5), atol=1e-5)
    assert patches(PUBLIC[:4]).shape == (4, 2 * 5 * 2 * 2)


def test_codes_are_never_negative() -> None:
    assert float(learnt()(PUBLIC).min()) >= 0.0


def test_colour_stands_beside_the_codes_of_colour_images_alone() -> None:
    colour = PUBLIC.expand(30, 3, 8, 8)
    assert learnt(colour, colour=2)(colour[:1]).shape == (1, 2 * 5 * 4 + 3 * 4)
    assert learnt(colour=2).colour == 0


def test_the_coarse_colour_is_the_mean_of_its_field() -> None:
    flat = torch.full((2, 3, 8, 8), 0.25)
    noisy = torch.rand(30, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(learnt(noisy, colour=2)(flat)[:, -12:], torch.full((2, 12), 0.25), atol=1e-6)


def test_the_key_decides() -> None:
    assert torch.equal(learnt().atoms, learnt().atoms)
    assert not torch.equal(learnt().atoms, learnt(seed=1).atoms)


def test_an_image_has_its_own_features_whoever_lies_beside_it() -> None:
    patches = learnt()
    assert torch.allclose(patches(PUBLIC)[7:8], patches(PUBLIC[7:8]), atol=1e-6)


def features(count: int = 200) -> torch.Tensor:
    g = torch.Generator().manual_seed(2)
    return torch.randn(count, 6, generator=g) * torch.tensor([5.0, 3.0, 1.0, 1.0, 1.0, 1.0]) + 2.0


@pytest.mark.parametrize("power", [0.0, 0.4, 0.5])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0])
def test_coordinates_have_norm_at_most_one(power: float, quantile: float) -> None:
    frame = fit_frame(features(), rank=3, power=power, quantile=quantile)
    inside = frame(features() * 10)
    assert inside.shape == (200, 3)
    assert float(inside.norm(dim=1).max()) <= 1.0 + 1e-5


def test_a_clip_at_the_largest_norm_clips_nobody() -> None:
    frame = fit_frame(features(), rank=6, power=0.5, quantile=1.0)
    assert float(frame(features()).norm(dim=1).max()) == pytest.approx(1.0, abs=1e-5)
    assert float(frame(features()).norm(dim=1).min()) < 0.9


def test_a_clip_at_the_smallest_norm_brings_everybody_to_one() -> None:
    frame = fit_frame(features(), rank=6, power=0.5, quantile=0.0)
    assert frame(features()).norm(dim=1).tolist() == pytest.approx([1.0] * 200, abs=1e-4)


def test_half_a_power_makes_the_public_spectrum_flat() -> None:
    frame = fit_frame(features(), rank=6, power=0.5, quantile=1.0)
    assert float(frame.values.max() / frame.values.min()) == pytest.approx(1.0, rel=0.05)


def test_no_more_directions_than_features() -> None:
    assert fit_frame(features(), rank=99, power=0.4, quantile=0.0).basis.shape == (6, 6)


def test_fewer_images_than_features_still_have_their_directions() -> None:
    draw = torch.Generator().manual_seed(0)
    few = torch.randn(30, 200, generator=draw) @ torch.diag(torch.linspace(3.0, 0.01, 200))
    few[:, 50:60] = 0.0
    frame = fit_frame(few, rank=40, power=0.4, quantile=0.0)
    assert frame.basis.shape == (200, 40)
    found = frame(few)
    assert bool(found.isfinite().all())
    assert float(found.norm(dim=1).max()) <= 1 + 1e-5
    z = (few - frame.mean) / frame.std
    _, _, exact = torch.linalg.svd(z - z.mean(0), full_matrices=False)
    first = frame.basis[:, 0] / frame.basis[:, 0].norm()
    assert abs(float(first @ exact[0])) > 0.999
