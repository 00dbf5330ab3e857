"""PRISM: what only it can get wrong. The laws cover the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.method import Site
from prismfl.core.records import Records
from prismfl.core.task import Task
from prismfl.methods.prism import local as prism_local
from prismfl.methods.prism import prism, statistics
from prismfl.methods.prism.encoder import encoder
from prismfl.methods.prism.head import head_scores, lda_head, pool
from prismfl.nets.matching import match_images, moment_gap
from prismfl.privacy import account
from prismfl.rng import Key
from tests.laws.world import make_job, make_world, some_records
from tests.methods.record_play import CASES, neighbours, watch_noise

TASK = Task(
    data="tiny", shape=(1, 8, 8), classes=("a", "b", "c"), sites=("s",), records=24, model="mlp:8",
    public=torch.rand(80, 1, 8, 8, generator=torch.Generator().manual_seed(3)),
)  # fmt: skip
CFG = prism.Config(**{**prism.METHOD.tiny, "sigma": 1.0, "rank": 12, "covariance": 8})


def door_to(records: Records, seed: int = 0) -> PrivateRecords:
    return PrivateRecords(records, declared=24, classes=3, noise=Key.seed(seed).noise())


def test_a_record_vector_has_norm_at_most_one() -> None:
    """So the door never has to clip, and the shares of the sensitivity are what the settings say."""
    enc = encoder(CFG, TASK)
    layout = statistics.row_layout(CFG, TASK)
    x = torch.cat([torch.rand(20, 1, 8, 8), torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8) * 50])
    rows = statistics.record_rows(enc, layout, x)
    scale = layout.moment / layout.means**2
    norms = (rows.square().sum(1) + (scale * rows[:, : layout.second].square().sum(1)).square()).sqrt()
    assert float(norms.max()) <= 1.0 + 1e-5
    assert rows.shape[1] == layout.width
    assert layout.means**2 + layout.moment**2 + layout.nets**2 + layout.count**2 == pytest.approx(1.0)


@pytest.mark.parametrize("case", CASES)
def test_record_play(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring data: the same public parameters, and sums no further apart than the bound."""
    n = 257  # one more than a batch
    pair, seen = neighbours(case, some_records(n, seed=1)), watch_noise(monkeypatch)
    for records in pair:
        statistics.release_statistics(CFG, Site("s", door_to(records), {}, TASK))
    (one, bound, sigma), (other, bound2, sigma2) = seen
    assert (one.shape, bound, sigma) == (other.shape, bound2, sigma2)
    gap = float((one - other).norm())
    assert 0.1 < gap <= bound * (1 + 1e-5)


def test_the_head_recovers_means_and_covariance_without_noise() -> None:
    """With next to no noise the pooled statistics are those of the records."""
    cfg = CFG.model_copy(update={"sigma": 1e-9})
    records = [some_records(300, seed=s) for s in (1, 2)]
    enc = encoder(cfg, TASK)
    layout = statistics.row_layout(cfg, TASK)
    released = [statistics.release_statistics(cfg, Site("s", door_to(r), {}, TASK)).tensors for r in records]
    pooled = pool(cfg, layout, released, enc, usual=1000)
    x, y = (torch.cat([getattr(r, k) for r in records]) for k in "xy")
    z = enc.coordinates(x)
    means = torch.stack([z[y == c].mean(0) for c in range(3)])
    torch.testing.assert_close(pooled.counts, torch.tensor([200.0, 200.0, 200.0]), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(pooled.means, means, rtol=1e-3, atol=1e-4)
    lead = (z - means[y])[:, : layout.second]
    torch.testing.assert_close(pooled.within[:8, :8], lead.T @ lead / 600, rtol=1e-3, atol=1e-4)
    head = lda_head(cfg, pooled)
    assert float((head_scores(enc, head, x).argmax(1) == y).float().mean()) > 0.9


def test_a_site_without_a_class_does_not_drown_it() -> None:
    """Pure-noise blocks of sites that lack a class are left out by their noisy count, not by a look at the data."""
    cfg = CFG.model_copy(update={"sigma": 3.0})
    enc = encoder(cfg, TASK)
    layout = statistics.row_layout(cfg, TASK)
    with_class = some_records(3000, seed=1)
    without = Records(with_class.x[:2000], with_class.y[:2000] % 2)
    released = [
        statistics.release_statistics(cfg, Site("s", door_to(r, i), {}, TASK)).tensors
        for i, r in enumerate((with_class, without))
    ]
    pooled = pool(cfg, layout, released, enc, usual=1000)
    alone = pool(cfg, layout, released[:1], enc, usual=1000)
    torch.testing.assert_close(pooled.means[2], alone.means[2])
    assert not torch.allclose(pooled.means[0], alone.means[0])


def test_matching_moves_images_to_the_targets_and_the_knob_keeps_them_home() -> None:
    enc = encoder(CFG, TASK)
    assert TASK.public is not None
    seeds, labels = TASK.public[:12], torch.arange(3).repeat_interleave(4)
    private = some_records(60, seed=5)
    targets = torch.stack([torch.stack([net(private.x[private.y == c]).mean(0) for net in enc.nets]) for c in range(3)])

    def gap(x: torch.Tensor) -> float:
        found = torch.stack([torch.stack([net(x[labels == c]).mean(0) for net in enc.nets]) for c in range(3)])
        return float((found - targets).square().sum())

    moved = {
        c: match_images(
            enc.nets, targets, seeds=seeds, labels=labels, steps=60, per_step=3, lr=0.3, closeness=c, key=Key.seed(1)
        )
        for c in (0.0, 5.0)
    }
    assert gap(moved[0.0]) < 0.3 * gap(seeds)
    far = {c: float((x - seeds).square().sum()) for c, x in moved.items()}
    assert far[5.0] < 0.5 * far[0.0]
    assert gap(moved[5.0]) > gap(moved[0.0])


def test_more_budget_for_training_means_more_noise_on_the_statistics() -> None:
    cfg = prism_local.Config(**{**prism_local.METHOD.tiny, "sigma": 2.0, "share": 0.5})
    assert cfg.statistics_noise == pytest.approx(2.0 * 2**0.5)
    none = cfg.model_copy(update={"share": 0.0})
    assert none.statistics_noise == 2.0
    assert account.epsilon(prism_local.plan(none, TASK), 1e-5) < account.epsilon(prism_local.plan(cfg, TASK), 1e-5) * 3


def test_the_images_carry_no_record_when_the_noise_is_ordinary(tmp_path: Path) -> None:
    """No synthetic image of a tiny noisy run is a copy of a private one."""
    world = make_world(make_job("prism", sigma=4.0), tmp_path)
    state, _ = world.run()
    made = state.items["synthetic"].tensors["x"].float() / 255
    private = torch.cat([host.records().x for host in world.hosts])
    assert float(torch.cdist(made.flatten(1), private.flatten(1)).min()) > 0.5


def test_a_server_sees_the_same_shapes_from_one_and_three_channels() -> None:
    colour = replace(TASK, shape=(3, 16, 16), public=torch.rand(60, 3, 16, 16))
    enc = encoder(CFG, colour)
    rows = statistics.record_rows(enc, statistics.row_layout(CFG, colour), colour.public[:2])  # type: ignore[index]
    assert statistics.shapes(CFG, colour)["statistics"]["sums"] == ("float32", (3, rows.shape[1]))


def adaptive(enough: float) -> dict[str, object]:
    return {"budget": "adaptive", "rounds": 4, "enough": enough}


def test_an_adaptive_site_stops_when_its_release_is_clear_and_pays_the_plan(tmp_path: Path) -> None:
    """Stopping early asks fewer questions, and never lowers the charge."""
    plan = make_job("prism", sigma=0.1, settings=adaptive(1.0)).plan()
    for enough in (1e-9, 1e9):
        job = make_job("prism", sigma=0.1, settings=adaptive(enough))
        world = make_world(job, tmp_path / str(enough), cap=1.1 * account.epsilon_rdp(job.plan(), 1e-5))
        world.run()
        assert world.charged(world.hosts[0].ledger) == plan
        shares = [float(r.items["statistics"].tensors["spent"]) for r in world.releases if r.site == "site-0"]
        assert shares == pytest.approx([1 / 15, 3 / 15, 7 / 15, 1.0] if enough < 1 else [1 / 15] * 4)


def test_joined_exchanges_are_as_clear_as_one_release_of_the_whole_budget() -> None:
    """Weights by budget: the noise of the joined sums is that of a single release at sigma."""
    cfg = CFG.model_copy(update={"sigma": 2.0, "rounds": 3})
    empty = some_records(3, seed=0).take(torch.arange(0))
    memory: dict[str, object] = {}
    for r in range(3):
        site = Site("s", door_to(empty, seed=r), memory, TASK)  # type: ignore[arg-type]
        leaves, _ = statistics.next_statistics(cfg, r, site)
        memory = {"statistics": leaves}
    noise = leaves.tensors["sums"]
    assert float(leaves.tensors["spent"]) == pytest.approx(1.0)
    assert abs(float(noise.std()) / 2.0 - 1.0) < 0.25


def test_a_budget_too_small_for_use_is_said_before_it_is_spent() -> None:
    assert statistics.advice(CFG.model_copy(update={"sigma": 50.0}), TASK)
    assert statistics.advice(CFG.model_copy(update={"sigma": 1.0}), replace(TASK, records=100_000)) == []


def test_the_moment_gap_is_zero_for_whitened_classes_and_sees_a_shift_and_a_stretch() -> None:
    labels = torch.arange(3).repeat_interleave(200)
    z = torch.randn(600, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = z.reshape(3, 200, 4) - z.reshape(3, 200, 4).mean(1, keepdim=True)
    flat = z.reshape(600, 4)
    flat = flat @ torch.linalg.inv(torch.linalg.cholesky(flat.T @ flat / 600)).T
    assert moment_gap(flat, labels, classes=3) < 1e-12
    shifted = flat + 0.5 * (labels == 1)[:, None]
    assert moment_gap(shifted, labels, classes=3) == pytest.approx(4 * 0.25 / 3 + 16 * (0.25 / 3) ** 2 / 4, rel=1e-6)
    assert moment_gap(2 * flat, labels, classes=3) == pytest.approx(9.0)


def test_public_crops_and_mixtures_are_labelled_by_the_head_and_get_their_share_of_the_draws() -> None:
    cfg = CFG.model_copy(
        update={"copies": 2, "public_copies": 1, "public_share": 0.6, "blends": 3, "blend_share": 0.25, "centre": False}
    )
    enc = encoder(cfg, TASK)
    generator = torch.Generator().manual_seed(0)
    head = {
        "weight": torch.randn(statistics.row_layout(cfg, TASK).rank, 3, generator=generator),
        "bias": torch.zeros(3),
    }
    x, y = torch.rand(6, 1, 8, 8, generator=generator), torch.arange(6) % 3
    pictures, labels, weights = prism.training_set(cfg, TASK, enc, head, x=x, y=y, key=Key.seed(0))
    own, shown = 12, 92  # two copies of each image, then the 80 public ones, then three mixtures for each of these
    assert len(pictures) == len(labels) == len(weights) == 4 * shown
    torch.testing.assert_close(labels[:own], torch.nn.functional.one_hot(y.repeat(2), 3).float())
    opinion = torch.softmax(head_scores(enc, head, pictures[own:]), 1)
    torch.testing.assert_close(labels[own:], opinion, rtol=1e-4, atol=1e-5)
    parts = torch.stack([w.sum() for w in (weights[:own], weights[own:shown], weights[shown:])])
    torch.testing.assert_close(parts, torch.tensor([0.75 * 0.4, 0.75 * 0.6, 0.25]))
    mixed = pictures[shown:].flatten(1)
    assert float(torch.cdist(mixed, pictures[:shown].flatten(1)).min(1).values.median()) > 0.1
    low, high = pictures[:shown].amin(), pictures[:shown].amax()
    assert bool(((mixed >= low) & (mixed <= high)).all())


def test_without_public_images_there_is_the_network_alone(tmp_path: Path) -> None:
    made = make_world(make_job("prism"), tmp_path)
    state, _ = made.run()
    task, settings = made.job.task, made.job.settings
    assert isinstance(settings, prism.Config)
    assert set(prism.models(settings, task, state.items)) == {"network", "head", "linear"}
    assert set(prism.models(settings, replace(task, public=None), state.items)) == {"network"}
