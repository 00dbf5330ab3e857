"""The two diffusion models of DP-FETA: what they release, and that pictures follow their class."""

from __future__ import annotations

import pytest
import torch

from prismfl.methods.generators.diffusers import Diffuser, OnFrequencies, OnPixels, fixed_of
from prismfl.nets.diffusion import Sampler
from prismfl.nets.frequencies import Coefficients, Gaussians
from prismfl.nets.unet import UNetShape
from prismfl.rng import Key

SPACE, SAMPLER = Coefficients((1, 8, 8), 4), Sampler("heun", 8, highest=12.0, lowest=0.05)
MODELS: dict[str, Diffuser] = {
    "pixels": OnPixels(UNetShape((1, 8, 8), 2, 4), SAMPLER, "cpu"),
    "frequencies": OnFrequencies(SPACE, 2, 4, SAMPLER, False, "cpu"),
    "known": OnFrequencies(SPACE, 2, 4, SAMPLER, True, "cpu"),
}


def two_pictures() -> torch.Tensor:
    x = torch.zeros(2, 1, 8, 8)
    x[0, 0, :4], x[1, 0, 4:] = 1.0, 1.0
    return x


def gaussians() -> Gaussians:
    axes = torch.eye(SPACE.count).double().expand(2, -1, -1)
    return Gaussians(SPACE.of(two_pictures()), axes, torch.full((2, SPACE.count), 0.01).double())


@pytest.mark.parametrize("name", MODELS)
def test_what_is_released_has_the_declared_shapes(name: str) -> None:
    model = MODELS[name]
    released = {**model.fresh(Key.seed(0)).mean, **(fixed_of(gaussians()) if name == "known" else {})}
    assert {k: tuple(v.shape) for k, v in released.items()} == model.shapes()
    labels = torch.tensor([0, 1, 1])
    one, again = (model.draw(released, labels, Key.seed(1)) for _ in range(2))
    assert one.shape == (3, 1, 8, 8)
    assert torch.equal(one, again)
    assert model.draw(released, labels[:0], Key.seed(1)).shape == (0, 1, 8, 8)


def test_around_known_gaussians_pictures_follow_their_class_before_any_training() -> None:
    model, labels = MODELS["known"], torch.tensor([0, 1] * 8)
    made = model.draw({**model.fresh(Key.seed(0)).mean, **fixed_of(gaussians())}, labels, Key.seed(2))
    near = SPACE.pictures(SPACE.of(two_pictures()))
    gap = (made[:, None] - near[None]).flatten(2).square().mean(2)
    assert torch.equal(gap.argmin(1), labels)
    assert float(gap.min(1).values.max()) < 0.02
