"""The GAN attack's generator, on pictures where the right answer is known: bars and what nobody but the model has."""

from __future__ import annotations

import pytest
import torch

from prismfl.adversary.attacks import gan
from prismfl.errors import UserError
from prismfl.rng import Key

SIDE = 8


def bars(count: int, seed: int) -> torch.Tensor:
    """Pictures with a bright bar, upright in the left half or the right half."""
    generator = torch.Generator().manual_seed(seed)
    x = 0.1 * torch.rand(count, 1, SIDE, SIDE, generator=generator)
    for i, column in enumerate(torch.randint(1, SIDE - 1, (count,), generator=generator)):
        x[i, 0, :, int(column)] = 0.9
    return x


def right_or_left(x: torch.Tensor) -> torch.Tensor:
    """A model that knows two classes: 0 is bright on the left, 1 on the right."""
    halves = torch.stack([x[..., : SIDE // 2].mean((1, 2, 3)), x[..., SIDE // 2 :].mean((1, 2, 3))], 1)
    return 40.0 * halves


def indifferent(x: torch.Tensor) -> torch.Tensor:
    return 0.0 * right_or_left(x)


@pytest.mark.parametrize("label", [0, 1])
def test_the_generator_learns_the_class_from_the_model(label: int) -> None:
    made = gan.train([right_or_left], bars(200, 1), label, effort=gan.GanEffort(steps=100), key=Key.seed(0))
    drawn = made.draw(100, Key.seed(1))
    assert ((right_or_left(drawn).argmax(1) == label).float().mean()) > 0.9
    assert float(drawn.min()) >= 0.0
    assert float(drawn.max()) <= 1.0


def test_a_model_that_knows_nothing_teaches_nothing() -> None:
    made = gan.train([indifferent], bars(200, 1), 0, effort=gan.GanEffort(steps=100), key=Key.seed(0))
    share = float((right_or_left(made.draw(200, Key.seed(1))).argmax(1) == 0).float().mean())
    assert 0.3 < share < 0.7


def test_the_prior_holds_the_generator_near_the_own_pictures() -> None:
    def distance(prior: float) -> float:
        effort = gan.GanEffort(steps=100, prior=prior)
        return float(gan.train([right_or_left], bars(200, 1), 0, effort=effort, key=Key.seed(0)).distance())

    assert distance(0.2) < 0.5 * distance(0.0)


def test_the_distance_is_the_textbook_one() -> None:
    made = gan.start(bars(50, 2), 3)
    wide = gan.Generator(
        made.mean, made.basis, torch.tensor([1.0, 0.0, -2.0]), torch.diag(torch.tensor([1.0, 2.0, 0.5])), made.shape
    )
    ours = torch.distributions.MultivariateNormal(wide.centre, wide.spread @ wide.spread.T)
    standard = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))
    assert float(wide.distance()) == pytest.approx(float(torch.distributions.kl_divergence(ours, standard)), abs=1e-5)


def test_an_attacker_without_records_is_told_so() -> None:
    with pytest.raises(UserError, match="at least 10 own records, got 4"):
        gan.start(bars(4, 1), 3)
