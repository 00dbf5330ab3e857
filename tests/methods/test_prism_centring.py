"""A site's own centre: what it costs, what it may be, and that the server brings all sites back to one."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.core.method import Site, State
from prismfl.core.payloads import Statistics
from prismfl.errors import UserError
from prismfl.methods.prism import centring, statistics
from prismfl.methods.prism.encoder import encoder
from prismfl.methods.prism.head import HeadConfig, Pooled, lda_head, pool
from prismfl.methods.prism.rehearsal import played_release
from prismfl.privacy import account
from prismfl.privacy.cost import Cost
from tests.laws.world import some_records
from tests.methods.test_prism import CFG, TASK, door_to

CENTRED = CFG.model_copy(update={"centring": 0.2})


def rows_about(centre: torch.Tensor, n: int, generator: torch.Generator) -> torch.Tensor:
    return centre + 0.05 * torch.randn(n, len(centre), generator=generator)


def test_without_noise_the_centre_is_the_mean_and_no_longer_than_allowed() -> None:
    u = rows_about(torch.tensor([0.5, -0.3, 0.0]), 40, torch.Generator().manual_seed(0))
    torch.testing.assert_close(centring.centre_of(centring.with_count(u).sum(0), sigma=0.0), u.mean(0))
    long = torch.tensor([[3.0, 4.0]]).repeat(5, 1)
    assert float(centring.centre_of(centring.with_count(long).sum(0), sigma=0.0).norm()) == pytest.approx(0.95)


def test_a_centre_that_noise_could_have_made_is_not_believed() -> None:
    answer = torch.cat([torch.full((16,), 3.0), torch.tensor([10.0])])
    assert float(centring.centre_of(answer, sigma=1000.0).norm()) == 0.0
    assert float(centring.centre_of(torch.zeros(17), sigma=1.0).norm()) == 0.0
    nearly = centring.centre_of(answer, sigma=0.5).norm()
    assert 0 < float(nearly) < float(centring.centre_of(answer, sigma=0.0).norm())


def test_rows_stay_within_one_wherever_the_centre_lies() -> None:
    u = torch.nn.functional.normalize(torch.randn(50, 6, generator=torch.Generator().manual_seed(1)), dim=1)
    for length in (0.0, 0.5, 0.95):
        centre = torch.tensor([length, 0, 0, 0, 0, 0.0])
        assert float(centring.around(u, centre).norm(dim=1).max()) <= 1 + 1e-6
        assert float(centring.with_count(u).norm(dim=1).max()) == pytest.approx(1.0)


def test_what_leaves_costs_what_one_answer_would() -> None:
    """Two answers at shares of the squared budget: the meter reads the plan, and the plan is worth one Gaussian."""
    door = door_to(some_records(24, seed=1))
    told = statistics.release_statistics(CENTRED, Site("s", door, {}, TASK))
    assert door.meter.cost == statistics.plan(CENTRED, TASK)
    assert {k: v.shape for k, v in told.tensors.items()} == {
        k: torch.Size(size) for k, (_, size) in statistics.shapes(CENTRED, TASK)["statistics"].items() if k != "spent"
    }
    one = account.epsilon(Cost.gaussian(1.0), 1e-5)
    assert account.epsilon(statistics.plan(CENTRED, TASK), 1e-5) == pytest.approx(one, rel=2e-3)


def test_sites_about_different_centres_come_back_to_one() -> None:
    """Next to no noise and rows that no clip touches: means and covariance are those of the records."""
    generator = torch.Generator().manual_seed(2)
    middle = torch.zeros(12)
    middle[:2] = torch.tensor([0.6, 0.3])
    cfg = CENTRED.model_copy(update={"sigma": 1e-9, "networks": 0})
    layout, enc = statistics.layout_of(cfg, 12), encoder(CFG, TASK)
    y = torch.arange(600) % 3
    u = rows_about(middle, 600, generator) + 0.1 * torch.nn.functional.one_hot(y, 12)
    parts = (y < 1, y >= 1)  # one site has a class that the other lacks
    releases = [played_release(cfg, layout, u[p], y[p], classes=3, generator=generator) for p in parts]
    assert not torch.allclose(releases[0]["centre"], releases[1]["centre"], atol=0.03)
    pooled = pool(cfg, layout, releases, enc, usual=100)
    means = torch.stack([u[y == c].mean(0) for c in range(3)])
    torch.testing.assert_close(pooled.means, means, rtol=1e-3, atol=1e-4)
    lead = (u - means[y])[:, :8]
    torch.testing.assert_close(pooled.within[:8, :8], lead.T @ lead / 600, rtol=1e-2, atol=1e-5)


def test_far_from_the_public_images_a_centre_is_worth_its_share() -> None:
    generator = torch.Generator().manual_seed(3)
    far = torch.zeros(12)
    far[0] = 3.0
    scores = {}
    for share in (0.0, 0.1):
        cfg = HeadConfig(**{**_plain(), "centring": share, "sigma": 12.0})
        layout = statistics.layout_of(cfg, 12)
        found = []
        for _ in range(10):
            y = torch.randint(3, (1500,), generator=generator)
            spread = 0.4 * torch.nn.functional.one_hot(y + 2, 12) + 0.3 * torch.randn(1500, 12, generator=generator)
            u = torch.nn.functional.normalize(far + spread, dim=1)
            release = played_release(cfg, layout, u, y, classes=3, generator=generator)
            head = lda_head(cfg, _pooled(cfg, layout, release))
            found.append(float(((u @ head["weight"] + head["bias"]).argmax(1) == y).float().mean()))
        scores[share] = sum(found) / len(found)
    assert scores[0.1] > scores[0.0] + 0.05


def _plain() -> dict[str, object]:
    return {"networks": 0, "rank": 12, "covariance": 12, "spectrum": "cleaned", "share_means": 0.45}


def _pooled(cfg: HeadConfig, layout: statistics.RowLayout, release: dict[str, torch.Tensor]) -> Pooled:
    return pool(cfg, layout, [release], encoder(CFG, TASK), usual=500)


def test_a_centre_longer_than_a_row_is_not_from_an_honest_site() -> None:
    honest = statistics.release_statistics(CENTRED, Site("s", door_to(some_records(24, seed=1)), {}, TASK)).tensors
    told = {**honest, "spent": torch.ones(1)}
    state = State(0, {})
    assert statistics.possible(CENTRED, TASK, state, "s", {"statistics": Statistics(told)}) is None
    told["centre"] = torch.full((12,), 5.0)
    fault = statistics.possible(CENTRED, TASK, state, "s", {"statistics": Statistics(told)})
    assert fault is not None
    assert "centre" in fault


def test_a_centre_belongs_to_one_exchange_and_to_no_secure_sum() -> None:
    with pytest.raises(ValueError, match="expected rounds = 1, got 2"):
        HeadConfig(centring=0.1, rounds=2)
    with pytest.raises(UserError, match="centring = 0"):
        statistics.summed(CENTRED, TASK)


def test_both_answers_look_at_a_record_once() -> None:
    looked = []

    def look(x: torch.Tensor) -> torch.Tensor:
        looked.append(len(x))
        return x * 2

    seen, x = centring.remembered(look), torch.rand(4, 3)
    assert torch.equal(seen(x), seen(x.clone()))
    assert torch.equal(seen(x + 1), (x + 1) * 2)
    assert looked == [4, 4]
    assert math.isclose(CENTRED.answer_noise, CENTRED.noise / math.sqrt(0.8))
