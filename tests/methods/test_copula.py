"""The DP copula: marginals and correlations come back, releases add up, noise is shrunk, the plan is kept."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.errors import UserError
from prismfl.methods.generators import copula, latent
from prismfl.methods.generators.copula import Layout
from prismfl.methods.generators.moments import Queries
from prismfl.methods.generators.synthesizers import Recipe, Training, fit, merge
from prismfl.methods.generators.synthesizers import draw as draw_records
from prismfl.nets.beta_vae import Shape
from prismfl.nets.columns import Columns
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

COLUMNS = Columns.parse(["n", "c3", "b", "n"])
LAYOUT = Layout.of(COLUMNS)
QUIET = Queries(4, 1e-3, 1.0)


def some_table(n: int, seed: int = 0) -> torch.Tensor:
    """Two correlated numbers; a choice (0.6, 0.3, 0.1) whose place follows the first number; a binary, +1 in 80 %."""
    g = torch.Generator().manual_seed(seed)
    normal = torch.randn(n, 1, generator=g)
    first = 0.2 + 0.2 * normal
    last = -0.5 + 0.1 * normal + 0.05 * torch.randn(n, 1, generator=g)
    place = torch.searchsorted(torch.tensor([0.6, 0.9]), torch.special.ndtr(normal[:, 0]))
    binary = (torch.rand(n, 1, generator=g) < 0.8).float() * 2 - 1
    return torch.cat([first, torch.eye(3)[place], binary, last], 1).clamp(-1, 1)


def door(x: torch.Tensor, y: torch.Tensor | None = None, *, classes: int = 1, seed: int = 1) -> PrivateRecords:
    labels = torch.zeros(len(x), dtype=torch.int64) if y is None else y
    return PrivateRecords(
        Records(x, labels), declared=max(1, len(x)), classes=classes, noise=Key.seed(seed).noise(), allow_exact=False
    )


def sums(x: torch.Tensor, *, queries: Queries = QUIET, seed: int = 1) -> dict[str, torch.Tensor]:
    seen = copula.look(door(x, seed=seed), LAYOUT, sigma=queries.sigma)
    return dict(copula.fit(door(x, seed=seed + 1), LAYOUT, queries=queries, start=2, seen=seen))


def drawn(released: dict[str, torch.Tensor], n: int = 8000) -> torch.Tensor:
    (part,) = latent.clean(LAYOUT, [copula.merge(LAYOUT, [released])])
    return latent.draw(LAYOUT, latent.build(LAYOUT, part), n, torch.Generator().manual_seed(0))


def test_positions_follow_the_declared_order() -> None:
    x = torch.tensor([[0.3, 0.0, 1.0, 0.0, -1.0, 0.7], [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]]).double()
    assert (x @ LAYOUT.positions()).tolist() == [
        [pytest.approx(0.3), 0.0, -1.0, pytest.approx(0.7)],
        [0.0, 1.0, 1.0, 0.0],
    ]
    assert LAYOUT.shapes()["products"] == (10,)


def test_a_look_finds_sizes_and_centre() -> None:
    x, y = some_table(3000), (torch.arange(3000) % 3 == 0).long()
    seen = copula.look(door(x, y, classes=2), LAYOUT, sigma=1e-3)
    # Rows longer than the typical one are clipped, so that sizes and centre are a little small.
    assert seen.sizes.tolist() == pytest.approx([2000, 1000], rel=0.1)
    assert torch.allclose(seen.centre.float(), x.mean(0), atol=0.06)


def test_marginals_spreads_and_correlations_come_back() -> None:
    x = some_table(6000)
    made = drawn(sums(x))
    assert torch.equal(made[:, 1:4].sum(1), torch.ones(len(made)))
    assert set(made[:, 4].tolist()) == {-1.0, 1.0}
    assert torch.allclose(made.mean(0), x.mean(0), atol=0.06)
    assert torch.allclose(made[:, [0, 5]].std(0), x[:, [0, 5]].std(0), rtol=0.25)
    moves = LAYOUT.positions().float()
    true, found = torch.corrcoef((x @ moves).T), torch.corrcoef((made @ moves).T)
    assert float(true[0, 1]) > 0.7
    assert torch.allclose(found, true, atol=0.12)


def test_samples_at_a_lower_rate_stand_for_all_records() -> None:
    x = some_table(2000)
    made = copula.fit(door(x), LAYOUT, queries=Queries(20, 1e-3, 0.25), start=10, seen=None)
    assert torch.allclose(made["sums"] / made["count"], x.mean(0), atol=0.06)
    assert torch.allclose(made["sums"] / len(x), x.mean(0), atol=0.06)
    assert float(made["count"]) == pytest.approx(len(x), rel=0.1)


def test_releases_of_two_sites_add_up_to_those_of_one() -> None:
    x = some_table(4000)
    halves = [sums(x[:2000], seed=1), sums(x[2000:], seed=5)]
    merged, one = copula.merge(LAYOUT, halves), copula.merge(LAYOUT, [sums(x)])
    assert float(merged["count"]) == pytest.approx(float(one["count"]), rel=0.05)
    for name in ("sums", "products"):
        assert torch.allclose(merged[name] / merged["count"], one[name] / one["count"], atol=0.08)
    assert merged["noise"].tolist() == pytest.approx(
        [math.hypot(*(float(h["noise"][i]) for h in halves)) for i in (0, 1)], rel=1e-5
    )


def test_products_about_a_wrong_centre_are_moved_to_the_mean() -> None:
    x = some_table(4000)
    made = {k: v.clone() for k, v in sums(x).items()}
    shift = torch.tensor([0.3, 0.0, 0.0, 0.0])
    wrong = copula.symmetric(made["products"], 4) + float(made["weight"]) * torch.outer(shift, shift).double()
    upper = torch.triu_indices(4, 4)
    moved = made | {"centre": made["centre"] - shift, "products": wrong[upper[0], upper[1]].float()}
    straight, back = (copula.merge(LAYOUT, [m])["products"] for m in (made, moved))
    assert torch.allclose(straight, back, atol=0.02 * float(made["weight"]))


def test_differences_that_are_noise_are_shrunk_and_real_ones_stay() -> None:
    base = dict(copula.merge(LAYOUT, [sums(some_table(2000))]))
    other = base | {"sums": base["sums"] + 2000 * torch.tensor([0.3, 0, 0, 0, 0, 0.01]).double()}
    loud = torch.tensor([2000 * 0.2, 2000 * 0.2])
    near, far = latent.clean(LAYOUT, [base | {"noise": loud}, other | {"noise": loud}])
    gap = far.mean - near.mean
    assert float(gap[0]) > 0.25
    assert abs(float(gap[5])) < 1e-6


def test_correlations_below_the_noise_are_dropped() -> None:
    matrix = torch.eye(6).double() + 0.1 * torch.ones(6, 6).double()
    off = ~torch.eye(6, dtype=torch.bool)
    assert torch.allclose(latent._spectral(matrix, 1e-6), matrix, atol=1e-6)
    assert float(latent._spectral(matrix, 1.0)[off].abs().max()) < 1e-6


@pytest.mark.parametrize(("n", "sigma"), [(0, 1.0), (1, 1.0), (40, 1e5)])
def test_few_records_and_huge_noise_still_give_valid_records(n: int, sigma: float) -> None:
    made = drawn(sums(some_table(50)[:n], queries=Queries(3, sigma, 1.0)), 200)
    assert bool(torch.isfinite(made).all())
    assert float(made.abs().max()) <= 1.0
    assert torch.equal(made[:, 1:4].sum(1), torch.ones(200))


@pytest.mark.parametrize(("times", "start"), [(1, 5), (2, 0), (4, 2), (4, 9)])
def test_the_door_is_asked_exactly_as_often_as_planned(times: int, start: int) -> None:
    at = door(some_table(60))
    made = copula.fit(at, LAYOUT, queries=Queries(times, 1.0, 0.5), start=start, seen=None)
    assert at.meter.cost == Cost.gaussian(1.0, rate=0.5, times=times)
    assert {k: tuple(v.shape) for k, v in made.items()} == LAYOUT.shapes()


def test_one_generator_learns_how_the_label_goes_with_the_columns() -> None:
    x = some_table(3000)
    y = (x[:, 0] > 0.2).long()
    recipe = Recipe("dp-copula", Shape(COLUMNS), 2, joint=True)
    training = Training(QUIET, start=2, beta=0.1, clip=1.0, lr=0.1)
    parts = {f"dp-copula.all.{k}": v for k, v in fit(door(x, y, classes=2), recipe, training, key=Key.seed(0)).items()}
    assert {k: ("float32", tuple(v.shape)) for k, v in parts.items()} == recipe.shapes()
    made, labels = draw_records(recipe, merge(recipe, [parts, parts]), torch.tensor([2000, 2000]), key=Key.seed(2))
    assert float(made[labels == 1][:, 0].mean() - made[labels == 0][:, 0].mean()) > 0.2


def test_too_many_columns_are_refused_but_many_categories_are_not() -> None:
    Recipe("dp-copula", Shape(Columns.parse(["c300", "n"])), 2)
    with pytest.raises(UserError, match="up to 256 columns, got 300"):
        Recipe("dp-copula", Shape(Columns.parse(["n"] * 300)), 2)
