"""DP-MERF and DP-GAN: what only they can get wrong. The laws cover the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.methods.generators import dp_merf
from prismfl.nets import gan, merf
from prismfl.nets.diffusion import Learner
from prismfl.rng import Key
from tests.laws.world import make_job, make_world, some_records
from tests.methods.record_play import CASES, neighbours, watch_noise

TASK = Task(data="tiny", shape=(1, 8, 8), classes=("a", "b", "c"), sites=("s",), records=24, model="mlp:8")
CFG = dp_merf.Config(**{**dp_merf.METHOD.tiny, "sigma": 1.0})


def site_of(records: Records, seed: int = 0) -> Site:
    door = PrivateRecords(records, declared=24, classes=3, noise=Key.seed(seed).noise())
    return Site("s", door, {}, TASK)


def test_features_have_norm_one_and_make_a_gaussian_kernel() -> None:
    features = merf.Fourier.draw(64, features=20_000, lengths=(0.5,), key=Key.seed(0))
    x = torch.rand(2, 1, 8, 8, generator=Key.seed(1).torch())
    rows = features(x)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(2))
    kernel = torch.exp(-(x[0] - x[1]).square().sum() / (2 * 0.25 * 64))
    assert float(rows[0] @ rows[1]) == pytest.approx(float(kernel), abs=0.02)
    torch.testing.assert_close(features(x, torch.arange(7)).norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("case", [*CASES, "not finite"])
def test_record_play(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, seen = neighbours(case, some_records(257, seed=1)), watch_noise(monkeypatch)
    for records in pair:
        dp_merf.embed(CFG, site_of(records))
    (one, bound, sigma), (other, bound2, sigma2) = seen
    assert (one.shape, bound, sigma) == (other.shape, bound2, sigma2)
    gap = float((one - other).norm())
    assert gap <= bound * (1 + 1e-5)
    assert gap > 0.9 or case == "not finite"


def test_sums_and_sizes_come_out_in_records() -> None:
    cfg = CFG.model_copy(update={"sigma": 1e-9})
    records = some_records(300, seed=1)
    found = dp_merf.embed(cfg, site_of(records))
    rows = dp_merf.bank(cfg, TASK)(records.x)
    expected = torch.stack([rows[records.y == c].sum(0) for c in range(3)])
    torch.testing.assert_close(found["sums"], expected, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(found["counts"], torch.tensor([100.0, 100.0, 100.0]), rtol=1e-4, atol=1e-2)


def test_a_generator_meets_the_means_it_is_given() -> None:
    """And keeps variety: with the bias of the squared norm left in, it would draw one image a class."""
    records = some_records(400, seed=3)
    features = merf.Fourier.draw(64, features=400, lengths=(0.3,), key=Key.seed(0))
    rows = features(records.x)
    means = torch.stack([rows[records.y == c].mean(0) for c in range(3)])
    network = merf.ImageRecipe((1, 8, 8), 3, 4, 8).build(Key.seed(1))

    def gap() -> float:
        y = torch.arange(3).repeat_interleave(200)
        with torch.no_grad():
            made = features(network(torch.randn(600, 4, generator=Key.seed(5).torch()), y))
        return float((made.reshape(3, 200, -1).mean(1) - means).square().sum())

    before = gap()
    how = merf.MatchingSteps(150, 20, 200, 5e-3)
    merf.match(network, features, means, present=torch.ones(3, dtype=torch.bool), how=how, key=Key.seed(2))
    assert gap() < 0.1 * before


def test_a_class_without_records_is_not_drawn(tmp_path: Path) -> None:
    job = make_job("dp-merf", sigma=0.1, records=240)
    owned = {s: some_records(240, seed=i, classes=(0, 2)) for i, s in enumerate(job.task.sites)}
    state, _ = make_world(job, tmp_path, records=owned).run()
    assert sorted(set(state.items["synthetic"].tensors["y"].tolist())) == [0, 2]


def test_the_discriminator_learns_from_records_through_the_fast_path() -> None:
    """Its gradient sum is that of autograd when nothing is clipped: a plain sequence with one score a class."""
    judge = gan.build_discriminator((1, 8, 8), 3, width=2, key=Key.seed(0))
    params = {k: p.detach() for k, p in judge.named_parameters()}
    records = some_records(6, seed=0)
    found = clipped_gradient_sum(gan.real_loss(judge), params, batch=(records.x, records.y), clip=1e6)
    leaves = {k: p.clone().requires_grad_() for k, p in params.items()}
    loss = torch.nn.functional.softplus(-gan.scores(judge, leaves, records.x, records.y)).sum()
    for name, g in zip(leaves, torch.autograd.grad(loss, list(leaves.values()))):
        torch.testing.assert_close(found[name], g.double(), rtol=1e-4, atol=1e-5)


def test_made_images_weigh_no_more_than_private_ones() -> None:
    judge = gan.build_discriminator((1, 8, 8), 3, width=2, key=Key.seed(0))
    network = merf.ImageRecipe((1, 8, 8), 3, 4, 2).build(Key.seed(1))
    players = gan.Players(network, torch.optim.Adam(network.parameters()), judge, Key.seed(2).torch(), 8)
    learner = Learner.start({k: p.detach() for k, p in judge.named_parameters()})
    gradient = players.fake_gradient(learner, clip=1e-3)
    assert float(torch.cat([g.flatten() for g in gradient.values()]).norm()) <= 1e-3 * (1 + 1e-5)
    weight = dict(network.named_parameters())["net.0.weight"]
    before = weight.detach().clone()
    players.improve(learner)
    assert not torch.equal(before, weight)
