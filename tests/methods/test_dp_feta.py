"""DP-FETA and DPDM: what only they can get wrong. The laws cover the rest."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site
from prismfl.core.payloads import SyntheticSet
from prismfl.core.records import Records
from prismfl.core.rounds import Host, initial_state, receive, server_step, site_step
from prismfl.core.task import Task
from prismfl.errors import UserError, WireError
from prismfl.kernels.clipped_gradients import clipped_gradient_sum
from prismfl.methods import METHODS
from prismfl.methods.generators import dp_feta, threedgl
from prismfl.methods.generators import images as generators
from prismfl.methods.generators.central import Central
from prismfl.nets import diffusion
from prismfl.nets.diffusion import Learner, Sampler
from prismfl.nets.unet import UNetShape
from prismfl.rng import Key
from tests.laws.world import make_job, make_world, some_records
from tests.methods.record_play import CASES, neighbours, watch_noise

SHAPE = UNetShape((1, 8, 8), 3, 4)


def central(kind: str = "mean", **changes: object) -> Central:
    values = {"queries": 2, "batch": 24.0, "sigma": 1.0, "side": 4, "buckets": 3, **changes}
    return Central(kind=kind, image=(1, 8, 8), classes=3, **values)  # type: ignore[arg-type]


def door_to(records: Records, *, declared: int = 24, seed: int = 0) -> PrivateRecords:
    return PrivateRecords(records, declared=declared, classes=3, noise=Key.seed(seed).noise())


@pytest.mark.parametrize("kind", ["mean", "mode", "bucket"])
def test_a_record_adds_a_vector_of_norm_at_most_one_to_one_block(kind: str) -> None:
    asked = central(kind)
    x = torch.cat(
        [torch.rand(20, 1, 8, 8), torch.zeros(1, 1, 8, 8), 50 * torch.ones(1, 1, 8, 8), -torch.ones(1, 1, 8, 8)]
    )
    y = torch.arange(len(x)) % 3
    rows = asked.rows(x, y, torch.rand(3, asked.pixels)).reshape(len(x), asked.blocks, asked.width)
    assert float(rows.flatten(1).norm(dim=1).max()) <= 1.0 + 1e-6
    used = rows.abs().sum(2) > 0
    assert (used.sum(1) == 1).all()
    assert (used.float().argmax(1) // (asked.blocks // 3) == y).all()


@pytest.mark.parametrize("kind", ["mean", "mode"])
@pytest.mark.parametrize("case", CASES)
def test_record_play(kind: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring data: the same public parameters, and sums no further apart than the bound."""
    n = 257
    pair, seen = neighbours(case, some_records(n, seed=1)), watch_noise(monkeypatch)
    for batch in (24.0, 12.0):
        for records in pair:
            central(kind, batch=batch).ask(door_to(records))
    gaps = []
    for i in range(2):
        for (one, bound, sigma), (other, bound2, sigma2) in zip(seen[4 * i : 4 * i + 2], seen[4 * i + 2 : 4 * i + 4]):
            assert (one.shape, bound, sigma) == (other.shape, bound2, sigma2)
            gaps.append(float((one - other).norm()) / bound)
    assert max(gaps) <= 1 + 1e-5
    assert min(gaps[:2]) > 0.1, "at rate 1 the record is in every sample"


def test_central_images_are_the_class_means_and_leave_out_classes_without_records() -> None:
    records = some_records(3000, seed=1)
    records = Records(records.x, records.y % 2)
    asked = central(sigma=1e-6, batch=3000.0, bound=1.0, side=8)
    sums = asked.ask(door_to(records, declared=3000))
    x, y = asked.images(sums)
    assert sorted(set(y.tolist())) == [0, 1]
    for c in (0, 1):
        torch.testing.assert_close(x[y == c][0], records.x[records.y == c].clamp(0, 1).mean(0), rtol=1e-3, atol=1e-3)
    counts = asked.counts(sums, records=3000)
    torch.testing.assert_close(counts, torch.tensor([2000.0, 1000.0, 0.0]), atol=0.1, rtol=1e-3)


def test_an_empty_class_stays_out_under_noise() -> None:
    """Its block is pure noise: it must not become a picture because noise divided by noise is large."""
    records = some_records(3000, seed=1)
    asked = central(sigma=5.0, batch=1500.0)
    x, y = asked.images(asked.ask(door_to(Records(records.x, records.y % 2), declared=3000)))
    assert sorted(set(y.tolist())) == [0, 1]
    assert len(x) == len(y) == 4


def test_modes_are_the_most_frequent_levels() -> None:
    x = torch.zeros(300, 1, 8, 8)
    x[:200] = 0.9
    asked = central("mode", sigma=1e-6, batch=300.0, bins=5)
    images, _ = asked.images(asked.ask(door_to(Records(x, torch.zeros(300, dtype=torch.int64)), declared=300)))
    torch.testing.assert_close(images, torch.full_like(images, 0.9))


def test_buckets_divide_a_class_and_their_sizes_add_up() -> None:
    records = some_records(3000, seed=2)
    asked = central("bucket", sigma=1e-6, batch=3000.0)
    sums = asked.ask(door_to(records, declared=3000))
    sizes = sums[1, :, -1] / math.sqrt(asked.share_count)
    assert (sizes.reshape(3, 3) > 10).sum() >= 6, "several buckets of a class are used"
    torch.testing.assert_close(sizes.reshape(3, 3).sum(1), torch.full((3,), 1000.0), rtol=1e-3, atol=0.1)


def test_noise_draws_are_averaged_inside_the_record_gradient() -> None:
    module, learner = diffusion.fresh(SHAPE, Key.seed(0))
    with torch.no_grad():
        params = {k: p + 0.05 * torch.randn(p.shape, generator=Key.seed(1).torch()) for k, p in learner.params.items()}
    loss, records = diffusion.record_misfit(module, 3), some_records(3, seed=0)
    z = torch.randn(3, diffusion.normals((1, 8, 8), 4), generator=Key.seed(2).torch())
    sigma, noise = diffusion.noise_draws(z, (1, 8, 8))
    clip = 0.01
    found = clipped_gradient_sum(loss, params, batch=(records.x, records.y, z), clip=clip)
    total = torch.zeros(sum(p.numel() for p in params.values()), dtype=torch.float64)
    for i in range(3):
        singles = []
        for k in range(4):
            leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
            one = diffusion.misfit(
                module, leaves, x=2 * records.x[i : i + 1] - 1, labels=torch.eye(3)[records.y[i : i + 1]],
                sigma=sigma[i, k : k + 1], noise=noise[i, k : k + 1],
            )  # fmt: skip
            singles.append(torch.cat([g.flatten() for g in torch.autograd.grad(one, list(leaves.values()))]))
        mean = torch.stack(singles).mean(0)
        total += mean * min(1.0, clip / float(mean.norm()))
    torch.testing.assert_close(torch.cat([g.flatten() for g in found.values()]), total, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["euler", "heun", "stochastic"])
def test_a_trained_model_draws_its_classes(kind: str) -> None:
    shape = UNetShape((1, 8, 8), 2, 8)
    module, learner = diffusion.fresh(shape, Key.seed(0))
    x = torch.zeros(2, 1, 8, 8)
    x[0, 0, :4], x[1, 0, 4:] = 1.0, 1.0
    generator = Key.seed(1).torch()
    for _ in range(150):
        learner = diffusion.plain_step(
            module,
            learner,
            x=x.repeat(8, 1, 1, 1),
            labels=torch.eye(2).repeat(8, 1),
            lr=5e-3,
            keep=0.9,
            generator=generator,
        )
    sampler = Sampler(kind, 8)  # type: ignore[arg-type]
    made = sampler(module, learner.mean, torch.tensor([0, 1, 0, 1]), shape=shape, key=Key.seed(2))
    gap = (made[:, None] - x[None]).flatten(2).square().mean(2)
    assert (gap.argmin(1) == torch.tensor([0, 1, 0, 1])).all()
    assert float(gap.min(1).values.max()) < 0.05


def test_a_learner_remembers_everything() -> None:
    _, learner = diffusion.fresh(SHAPE, Key.seed(0))
    gradient = {k: torch.randn(p.shape, generator=Key.seed(3).torch()) for k, p in learner.params.items()}
    ahead = learner.step(gradient, 0.01, keep=0.9).step(gradient, 0.01, keep=0.9)
    again = Learner.of(learner.step(gradient, 0.01, keep=0.9).tensors()).step(gradient, 0.01, keep=0.9)
    assert all(torch.equal(a, again.tensors()[k]) for k, a in ahead.tensors().items())


def test_a_long_training_in_parts_is_charged_once_and_survives_a_break(tmp_path: Path) -> None:
    job = make_job("dp-feta", settings={"rounds": 3})
    whole = make_world(job, tmp_path / "whole")
    whole.run()
    assert whole.charged(whole.hosts[0].ledger) == job.plan()
    broken = make_world(job, tmp_path / "broken")
    host, state = broken.hosts[0], initial_state(job)
    others = broken.hosts[1:]
    for round in range(3):
        host = Host(host.name, host.records, host.ledger, host.dataset, host.folder)
        # The first attempt of this part is cut off before anything left: nothing is charged, nothing kept.
        door = PrivateRecords(
            host.records(), declared=24, classes=3, noise=host.noise_key(job, round).noise(), allow_exact=False
        )
        site = Site(host.name, door, host.memory(job, round), job.task)
        job.method.client(job.settings, state, site, job.key.child("client", host.name, round))
        inbox = {h.name: receive(job, state, h.name, site_step(job, state, h)).items for h in [host, *others]}
        assert inbox[host.name]["generator"].digest == whole.releases[3 * round].items["generator"].digest
        state = server_step(job, state, inbox)
    assert broken.charged(host.ledger) == job.plan()
    assert len(state.items["history"].tensors["x"]) == 3 * 3


def test_the_rounds_add_up_to_the_plan() -> None:
    job = make_job("dp-feta", settings={"rounds": 3})
    cfg = job.settings
    assert isinstance(cfg, dp_feta.Config)
    rounds = [dp_feta.round_cost(cfg, job.task, r, r == 0) for r in range(3)]
    assert rounds[0] + rounds[1] + rounds[2] == job.plan()


def test_pooled_central_images_are_the_sites_sums(tmp_path: Path) -> None:
    job = make_job("dp-feta", settings={"easy": "pooled", "rounds": 2})
    world = make_world(job, tmp_path)
    state, _ = world.run()
    first = [r.items["central"].tensors["sums"] for r in world.releases[:3]]
    torch.testing.assert_close(state.items["central"].tensors["sums"], torch.stack(first).sum(0))
    assert all(world.charged(host.ledger) == job.plan() for host in world.hosts)
    assert float(world.releases[3].items["central"].tensors["sums"].abs().sum()) == 0.0
    with pytest.raises(ValueError, match="rounds >= 2"):
        dp_feta.Config(easy="pooled")


@pytest.mark.parametrize("name", ["dp-feta", "dpdm", "dp-merf", "dp-gan"])
def test_samples_instead_of_a_network(name: str, tmp_path: Path) -> None:
    job = make_job(name, settings={"share": "samples"})
    world = make_world(job, tmp_path)
    state, _ = world.run()
    sent = world.releases[0].items["synthetic"]
    assert len(sent.tensors["x"]) == -(-job.settings.samples // 3)  # type: ignore[attr-defined]
    assert not any("net" in k or "stem" in k for k in world.releases[0].items["generator"].tensors)
    assert "model" in state.items
    assert world.charged(world.hosts[0].ledger) == job.plan()


@pytest.mark.parametrize("name", ["dp-feta", "dpdm", "dp-gan"])
def test_training_that_diverges_is_charged_and_names_the_setting(name: str, tmp_path: Path) -> None:
    job = make_job(name, settings={"lr": 1e38})
    world = make_world(job, tmp_path)
    state = initial_state(job)
    raw = site_step(job, state, world.hosts[0])
    assert world.charged(world.hosts[0].ledger) == job.plan()
    with pytest.raises(WireError, match=r"training has stopped.*lower lr"):
        receive(job, state, "site-0", raw)


@pytest.mark.parametrize("name", ["dp-feta", "dpdm", "dp-merf", "dp-gan"])
@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 8, 12), (1, 10, 10), (12,)])
def test_images_that_cannot_be_drawn_are_refused(name: str, shape: tuple[int, ...]) -> None:
    task = Task("tiny", shape, ("a", "b"), ("s",), 10)
    with pytest.raises(UserError, match="Image generators need"):
        METHODS[name].init(METHODS[name].settings.model_validate({"sigma": 1.0}), task, Key.seed(0))


def test_too_few_records_are_pointed_out() -> None:
    task = Task("tiny", (1, 8, 8), ("a", "b"), ("s",), 100)
    found = dp_feta.advice(dp_feta.Config(sigma=1.0), task)
    assert len(found) == 2
    assert "batch 1024" in found[0]
    assert dp_feta.advice(dp_feta.Config(sigma=1.0), Task("big", (1, 8, 8), ("a", "b"), ("s",), 60_000)) == []


def test_a_site_is_asked_only_for_classes_it_has() -> None:
    counts = torch.tensor([[1000.0, 2.0, -5.0], [500.0, 900.0, 4.0]])
    share = generators.trust(counts, noise=10.0)
    torch.testing.assert_close(share, torch.tensor([[1 / 3, 0.0, 0.0], [1 / 6, 0.5, 0.0]]))
    assert float(generators.trust(torch.zeros(2, 3), noise=10.0).sum()) == pytest.approx(1.0)
    assert torch.bincount(generators.labels_of(share.sum(0), 101), minlength=3).sum() == 101
    assert 2 not in generators.labels_of(share.sum(0), 101)


def test_a_pool_mixes_kinds(tmp_path: Path) -> None:
    """Sets drawn from a 3DGL pool and from this generator are one kind of thing."""
    feta, _ = make_world(make_job("dp-feta"), tmp_path / "a").run()
    job = make_job("3dgl", shape=(1, 8, 8))
    vae, _ = make_world(job, tmp_path / "b", records=lambda name: some_records(24, seed=1)).run()
    assert isinstance(job.settings, threedgl.Config)
    sets = [s for s in (feta.items["synthetic"], vae.items["synthetic"]) if isinstance(s, SyntheticSet)]
    mixed = SyntheticSet.of(torch.cat([s.x for s in sets]), torch.cat([s.hard_y for s in sets]))
    cfg = generators.GeneratorSettings(train_steps=2)
    assert generators.train_classifier(cfg, job.task, mixed, Key.seed(0))


def test_a_site_that_joins_late_asks_its_first_questions_then(tmp_path: Path) -> None:
    job = make_job("dp-feta", settings={"rounds": 3, "easy": "pooled"})
    world = make_world(job, tmp_path)
    early, late = world.hosts[:2], world.hosts[2]
    state = initial_state(job)
    for round in range(3):
        present = early if round == 0 else [*early, late]
        inbox = {h.name: receive(job, state, h.name, site_step(job, state, h)).items for h in present}
        state = server_step(job, state, inbox)
    assert "model" in state.items
    assert world.charged(late.ledger) == job.plan()
    assert world.charged(early[0].ledger) == job.plan()
