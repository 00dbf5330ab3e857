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
    assert str(error.value) == "Unknown synthesizer 'gan'; choose one of ddp-vae, dp-gaussian, dp-copula."


@pytest.mark.parametrize(("kind", "what"), [("dp-gaussian", "features"), ("dp-copula", "columns")])
def test_a_table_too_wide_for_a_covariance_is_refused(kind: str, what: str) -> None:
    wide = Shape(Columns.parse(["n"] * 257), hidden=(4,), latent=2)
    with pytest.raises(UserError) as error:
        Recipe(kind, wide, 2)
    assert str(error.value) == f"Synthesizer '{kind}' serves up to 256 {what}, got 257."
