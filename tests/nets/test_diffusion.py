"""Diffusion by hand: preconditioning, noise out of normal numbers, Adam, the ladder of noise levels."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.nets import diffusion
from prismfl.nets.diffusion import Learner, Sampler, denoise, fresh, misfit, noise_draws, normals, plain_step
from prismfl.nets.unet import UNetShape
from prismfl.rng import Key

SHAPE = UNetShape((1, 8, 8), 2, 4)


def test_the_factors_of_the_preconditioning() -> None:
    """At noise level 0.5, that of the data, both say one half and one half of a root of two."""
    module, learner = fresh(SHAPE, Key.seed(0))
    raw, skip, out = denoise(module, learner.params, torch.randn(1, 1, 8, 8), torch.tensor([0.5]), torch.eye(2)[:1])
    assert float(skip) == pytest.approx(0.5)
    assert float(out) == pytest.approx(0.5 * 0.5 / math.sqrt(0.5))
    assert not raw.any()  # the last layer starts at zero


def test_the_misfit_of_a_network_that_says_nothing() -> None:
    """Its target is (x - skip * noisy) / out, of a picture x and noise n at level s."""
    module, learner = fresh(SHAPE, Key.seed(0))
    x, n, s = torch.full((1, 1, 8, 8), 0.3), torch.full((1, 1, 8, 8), -1.0), 0.5
    noisy = 0.3 - 0.5
    target = (0.3 - 0.5 * noisy) / (0.25 / math.sqrt(0.5))
    found = misfit(module, learner.params, x=x, labels=torch.eye(2)[:1], sigma=torch.tensor([s]), noise=n)
    assert float(found.detach()) == pytest.approx(target**2, rel=1e-5)


@pytest.mark.parametrize("draws", [1, 3])
def test_normal_numbers_are_levels_and_noises(draws: int) -> None:
    image = (1, 2, 2)
    assert normals(image, draws) == draws * 5
    z = torch.zeros(draws * 5)
    z[draws:] = torch.arange(draws * 4)
    sigma, noise = noise_draws(z, image)
    assert sigma.tolist() == pytest.approx([math.exp(-0.8)] * draws)
    assert noise.shape == (draws, 1, 2, 2)
    assert noise.flatten().tolist() == list(range(draws * 4))


def test_the_loss_of_a_record_is_the_mean_over_its_draws() -> None:
    module, learner = fresh(SHAPE, Key.seed(0))
    loss = diffusion.record_misfit(module, 2)
    x, y = torch.rand(1, 8, 8), torch.tensor(1)
    z = torch.randn(2, 65)
    both = torch.cat([z[:, 0], z[:, 1:].flatten()])
    one, two, mean = (float(loss(learner.params, x, y, part).detach()) for part in (z[0], z[1], both))
    assert mean == pytest.approx((one + two) / 2, rel=1e-4)


def test_adams_first_step_is_the_rate_in_the_direction_of_the_sign() -> None:
    learner = Learner.start({"w": torch.tensor([1.0, 1.0])})
    after = learner.step({"w": torch.tensor([3.0, -0.01])}, 0.1, keep=0.0)
    assert after.params["w"].tolist() == pytest.approx([0.9, 1.1], rel=1e-4)
    assert after.steps == 1
    assert float(after.first["w"][0]) == pytest.approx(0.3)
    assert float(after.second["w"][0]) == pytest.approx(0.09)


def test_the_running_mean_remembers_as_much_as_it_is_told() -> None:
    learner = Learner.start({"w": torch.tensor([1.0])})
    forgets, keeps = (learner.step({"w": torch.tensor([1.0])}, 0.1, keep=k) for k in (0.0, 0.999))
    assert float(forgets.mean["w"]) == pytest.approx(0.9)
    assert float(keeps.mean["w"]) == pytest.approx(0.9 + 0.1 * 0.1)  # early on the memory is 1 / 10


def test_a_learner_comes_back_from_its_tensors() -> None:
    learner = Learner.start({"a/b": torch.tensor([1.0])}).step({"a/b": torch.tensor([2.0])}, 0.1, keep=0.5)
    again = Learner.of(learner.tensors())
    for one, two in zip((learner.params, learner.mean, learner.first, learner.second),
                        (again.params, again.mean, again.first, again.second)):  # fmt: skip
        assert torch.equal(one["a/b"], two["a/b"])
    assert again.steps == 1


def test_weights_that_are_not_finite_are_seen() -> None:
    assert Learner.start({"w": torch.tensor([1.0])}).finite
    assert not Learner.start({"w": torch.tensor([1.0, math.nan])}).finite


def test_steps_on_pictures_at_hand_make_the_misfit_smaller() -> None:
    module, learner = fresh(SHAPE, Key.seed(0))
    x, labels = torch.zeros(8, 1, 8, 8), torch.eye(2)[torch.arange(8) % 2]
    g = torch.Generator().manual_seed(0)

    def loss(at: Learner) -> float:
        z = torch.randn(8, normals((1, 8, 8), 1), generator=torch.Generator().manual_seed(5))
        sigma, noise = noise_draws(z, (1, 8, 8))
        found = misfit(module, at.params, x=2 * x - 1, labels=labels, sigma=sigma[:, 0], noise=noise[:, 0])
        return float(found.detach())

    before = loss(learner)
    for _ in range(20):
        learner = plain_step(module, learner, x=x, labels=labels, lr=0.01, keep=0.0, generator=g)
    assert loss(learner) < 0.8 * before


def test_the_ladder_falls_from_the_highest_level_to_nothing() -> None:
    ladder = Sampler(steps=6).ladder()
    assert len(ladder) == 7
    assert float(ladder[0]) == pytest.approx(diffusion.HIGHEST, rel=1e-4)
    assert float(ladder[-2]) == pytest.approx(diffusion.LOWEST, rel=1e-3)
    assert float(ladder[-1]) == 0.0
    assert bool((ladder.diff() < 0).all())


@pytest.mark.parametrize("kind", ["euler", "heun", "stochastic"])
def test_pictures_are_drawn_in_range_by_the_key(kind: str) -> None:
    module, learner = fresh(SHAPE, Key.seed(0))
    sampler = Sampler(kind, 3)  # type: ignore[arg-type]
    labels = torch.tensor([0, 1, 1])
    one, again, other = (sampler(module, learner.params, labels, shape=SHAPE, key=Key.seed(s)) for s in (1, 1, 2))
    assert one.shape == (3, 1, 8, 8)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert 0.0 <= float(one.min()) <= float(one.max()) <= 1.0


def test_no_labels_are_no_pictures() -> None:
    module, learner = fresh(SHAPE, Key.seed(0))
    made = Sampler(steps=2)(module, learner.params, torch.zeros(0, dtype=torch.int64), shape=SHAPE, key=Key.seed(0))
    assert made.shape == (0, 1, 8, 8)
