"""The GAN's players: scores by class, the loss of a record, a clipped gradient on made images."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.kernels.loss import refuse_cross_record_layers
from prismfl.nets.diffusion import Learner
from prismfl.nets.gan import Players, build_discriminator, doubt_of_real, real_loss, scores
from prismfl.nets.merf import ImageRecipe
from prismfl.rng import Key


def players(batch: int = 6) -> tuple[Players, Learner]:
    network = ImageRecipe((1, 8, 8), 2, 3, 2).build(Key.seed(0))
    judge = build_discriminator((1, 8, 8), 2, width=2, key=Key.seed(1))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    learner = Learner.start({k: p.detach().clone() for k, p in judge.named_parameters()})
    return Players(network, optimiser, judge, torch.Generator().manual_seed(0), batch), learner


def test_the_doubt_of_a_record_is_the_logistic_loss_of_its_class() -> None:
    output = torch.tensor([[2.0, -1.0]])
    assert float(doubt_of_real(output, torch.tensor(0))) == pytest.approx(math.log(1 + math.exp(-2.0)))
    assert float(doubt_of_real(output, torch.tensor(1))) == pytest.approx(math.log(1 + math.exp(1.0)))


def test_scores_are_those_of_the_label() -> None:
    judge = build_discriminator((1, 8, 8), 3, width=2, key=Key.seed(0))
    params = {k: p.detach() for k, p in judge.named_parameters()}
    x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 2, 1, 2])
    assert torch.allclose(scores(judge, params, x, y), judge(x)[torch.arange(4), y])


def test_the_discriminator_sees_records_one_by_one() -> None:
    judge = build_discriminator((3, 12, 12), 2, width=2, key=Key.seed(0))
    refuse_cross_record_layers(judge)
    x = torch.rand(3, 3, 12, 12)
    assert torch.allclose(judge(x), torch.cat([judge(x[i : i + 1]) for i in range(3)]), atol=1e-6)
    assert real_loss(judge).module is judge


def test_made_images_are_pictures_of_known_classes() -> None:
    game, _ = players()
    x, y = game.made()
    assert x.shape == (6, 1, 8, 8)
    assert set(y.tolist()) <= {0, 1}
    assert 0.0 <= float(x.min().detach()) <= float(x.max().detach()) <= 1.0


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_the_gradient_on_made_images_is_no_longer_than_the_clip(clip: float) -> None:
    game, learner = players()
    gradient = game.fake_gradient(learner, clip=clip)
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradient.values()))
    assert norm <= clip * (1 + 1e-5)
    assert norm == pytest.approx(clip, rel=1e-3) if clip < 1 else norm < 10


def test_a_step_of_the_generator_leaves_the_discriminator_alone() -> None:
    game, learner = players()
    before = {k: v.clone() for k, v in learner.params.items()}
    weights = [p.detach().clone() for p in game.network.parameters()]
    game.improve(learner)
    assert all(torch.equal(learner.params[k], before[k]) for k in before)
    assert any(not torch.equal(a, b) for a, b in zip(weights, game.network.parameters()))


def test_the_generator_comes_to_please_the_discriminator() -> None:
    game, learner = players(batch=32)

    def pleased() -> float:
        with torch.no_grad():
            z = torch.randn(64, 3, generator=torch.Generator().manual_seed(9))
            y = torch.arange(64) % 2
            return float(scores(game.discriminator, learner.params, game.network(z, y), y).mean())

    before = pleased()
    for _ in range(20):
        game.improve(learner)
    assert pleased() > before
