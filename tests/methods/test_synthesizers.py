"""Generators that may join a pool: one plan for every kind, public shapes, releases that are told from lies."""

from __future__ import annotations

import pytest
import torch

from prismfl.core.door import PrivateRecords
from prismfl.core.records import Records
from prismfl.errors import UserError
from prismfl.methods.generators import synthesizers
from prismfl.methods.generators.moments import Queries
from prismfl.methods.generators.synthesizers import KINDS, Recipe, Training, draw, fit
from prismfl.nets.beta_vae import Shape
from prismfl.nets.columns import Columns
from prismfl.privacy.cost import Cost
from prismfl.rng import Key

SHAPE = Shape(Columns.parse(["n", "b", "c2"]), hidden=(4,), latent=2)
TRAINING = Training(Queries(5, 1.3, 1.0), start=2, beta=1.0, clip=0.5, lr=0.01)


def door(count: int = 60) -> PrivateRecords:
    g = torch.Generator().manual_seed(0)
    number = torch.rand(count, 1, generator=g) - 0.5
    binary = (torch.rand(count, 1, generator=g) < 0.7).float() * 2 - 1
    choice = torch.eye(2)[torch.randint(2, (count,), generator=g)]
    records = Records(torch.cat([number, binary, choice], 1), torch.arange(count) % 2)
    return PrivateRecords(records, declared=60, classes=2, noise=Key.seed(1).noise(), allow_exact=False)


def released(recipe: Recipe) -> dict[str, torch.Tensor]:
    return {
        f"{recipe.kind}.{part}.{name}": tensor
        for part in recipe.parts
        for name, tensor in fit(door(), recipe, TRAINING, key=Key.seed(2)).items()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("joint", [False, True])
def test_every_kind_asks_the_same_and_releases_its_declared_shapes(kind: str, joint: bool) -> None:
    recipe, asked = Recipe(kind, SHAPE, 2, joint=joint), door()
    tensors = fit(asked, recipe, TRAINING, key=Key.seed(2))
    assert asked.meter.cost == Cost.gaussian(1.3, times=5)
    shapes = {f"{kind}.{p}.{k}": ("float32", tuple(v.shape)) for p in recipe.parts for k, v in tensors.items()}
    assert shapes == recipe.shapes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_without_records_releases_the_same_shapes(kind: str) -> None:
    recipe = Recipe(kind, SHAPE, 2)
    full, empty = (fit(door(n), recipe, TRAINING, key=Key.seed(2)) for n in (60, 0))
    assert {k: v.shape for k, v in full.items()} == {k: v.shape for k, v in empty.items()}
    assert all(bool(torch.isfinite(v).all()) for v in empty.values())


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_records_of_each_class_are_drawn_as_asked(kind: str) -> None:
    recipe = Recipe(kind, SHAPE, 2)
    x, y = draw(recipe, released(recipe), torch.tensor([3, 7]), key=Key.seed(3))
    assert x.shape == (10, 4)
    assert y.tolist() == [0] * 3 + [1] * 7
    assert torch.equal(x[:, 2:].sum(1), torch.ones(10))


@pytest.mark.parametrize("kind", KINDS)
def test_a_joint_network_draws_its_labels_itself(kind: str) -> None:
    recipe = Recipe(kind, SHAPE, 2, joint=True)
    x, y = draw(recipe, released(recipe), torch.tensor([20, 20]), key=Key.seed(3))
    assert x.shape == (40, 4)
    assert set(y.tolist()) <= {0, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_release_has_no_fault_and_a_wild_one_has(kind: str) -> None:
    recipe = Recipe(kind, SHAPE, 2)
    honest = released(recipe)
    assert synthesizers.fault(recipe, honest, TRAINING, 180.0) is None
    wild = {k: v + 1e9 for k, v in honest.items()}
    assert synthesizers.fault(recipe, wild, TRAINING, 180.0) is not None


def test_sums_add_up_where_a_release_is_sums() -> None:
    recipe = Recipe("dp-copula", SHAPE, 2)
    one = released(recipe)
    both = synthesizers.merge(recipe, [one, one])
    name = "dp-copula.0.count"
    assert float(both[name]) == pytest.approx(2 * float(one[name]), rel=1e-5)
    half = synthesizers.merge(recipe, [one, one], torch.tensor([[0.5, 1.0], [0.5, 1.0]]))
    assert float(half[name]) == pytest.approx(float(one[name]), rel=1e-5)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError) as error:
        Recipe("gan", SHAPE, 2)
    assert str(error.value) == "Unknown synthesizer 'gan'; choose one of ddp-vae, dp-gaussian, dp-copula, dp-marginals."


@pytest.mark.parametrize(("kind", "what"), [("dp-gaussian", "features"), ("dp-copula", "columns")])
def test_a_table_too_wide_for_a_covariance_is_refused(kind: str, what: str) -> None:
    wide = Shape(Columns.parse(["n"] * 257), hidden=(4,), latent=2)
    with pytest.raises(UserError) as error:
        Recipe(kind, wide, 2)
    assert str(error.value) == f"Synthesizer '{kind}' serves up to 256 {what}, got 257."


def with_gaps(count: int = 1500) -> torch.Tensor:
    """A number around 0.5 that is missing in 10 % of the one kind and 60 % of the other, and what goes with it."""
    g = torch.Generator().manual_seed(1)
    z, kind = torch.randn(count, generator=g), (torch.rand(count, generator=g) < 0.4).float()
    number, other = (0.5 + 0.15 * z).clamp(-1, 1), (0.2 * z + 0.1 * torch.randn(count, generator=g)).clamp(-1, 1)
    gone = (torch.rand(count, generator=g) < 0.1 + 0.5 * kind).float()
    return torch.stack([number * (1 - gone), gone, other, kind, 1 - kind], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_number_is_drawn_as_often_as_it_is_missing_and_moves_no_mean(kind: str) -> None:
    """Numbers that are missing are kept as 0: taken for values, they would pull 0.5 down to 0.35."""
    x, recipe = with_gaps(), Recipe(kind, Shape(Columns.parse(["m", "n", "c2"]), hidden=(16,), latent=3), 1, joint=True)
    records = Records(x, torch.zeros(len(x), dtype=torch.int64))
    opened = PrivateRecords(records, declared=1500, classes=1, noise=Key.seed(1).noise(), allow_exact=False)
    how = Training(Queries(60, 0.01, 0.5), start=10, beta=0.05, clip=1.0, lr=0.05)
    tensors = {f"{kind}.all.{k}": v for k, v in fit(opened, recipe, how, key=Key.seed(2)).items()}
    made, _ = draw(recipe, tensors, torch.tensor([4000]), key=Key.seed(3))
    there = made[:, 1] == 0
    assert set(made[:, 1].tolist()) == {0.0, 1.0}
    assert bool((made[~there, 0] == 0).all())
    assert float(made[:, 1].mean()) == pytest.approx(float(x[:, 1].mean()), abs=0.04)
    assert float(made[there, 0].mean()) == pytest.approx(0.5, abs=0.04)
    assert float(made[there, 0].std()) == pytest.approx(0.15, abs=0.04)
    assert float(torch.corrcoef(made[there][:, [0, 2]].T)[0, 1]) > 0.5
    seldom, often = (float(made[made[:, place] == 1, 1].mean()) for place in (4, 3))
    assert often - seldom > 0.2
