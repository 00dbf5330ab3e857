"""Random features of norm one, and the generator that meets their means."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.nets.merf import Fourier, ImageRecipe, MatchingSteps, match
from prismfl.rng import Key

X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def fourier(features: int = 20, lengths: tuple[float, ...] = (1.0,)) -> Fourier:
    return Fourier.draw(64, features=features, lengths=lengths, key=Key.seed(0))


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_features_have_norm_one_whatever_the_record(scale: float) -> None:
    assert fourier()(scale * X).norm(dim=1).tolist() == pytest.approx([1.0] * 5, rel=1e-4)


def test_features_by_hand() -> None:
    one = Fourier(torch.tensor([[math.pi, 0.0], [0.0, math.pi / 2]]))
    found = one(torch.tensor([[1.0, 1.0]]))[0]
    expected = [math.cos(math.pi), math.cos(math.pi / 2), math.sin(math.pi), math.sin(math.pi / 2)]
    assert found.tolist() == pytest.approx([v / math.sqrt(2) for v in expected], abs=1e-6)


def test_their_products_are_a_gaussian_kernel() -> None:
    """Of width `length` times the root of the dimensions."""
    many = fourier(features=8000, lengths=(0.5,))
    found = float(many(X[:1]) @ many(X[1:2]).T)
    gap = float((X[0] - X[1]).square().sum())
    assert found == pytest.approx(math.exp(-gap / (2 * 64 * 0.25)), abs=0.05)


def test_lengths_take_turns() -> None:
    mixed = Fourier.draw(4, features=8, lengths=(1.0, 100.0), key=Key.seed(0)).projections.norm(dim=1)
    assert float(mixed[::2].min()) > 10 * float(mixed[1::2].max())


def test_a_pick_of_pairs_has_norm_one_again() -> None:
    assert fourier()(X, torch.tensor([1, 4])).norm(dim=1).tolist() == pytest.approx([1.0] * 5, rel=1e-4)


def test_a_recipe_is_public_and_builds_the_same_structure() -> None:
    recipe = ImageRecipe((1, 8, 8), 3, 2, 2)
    assert recipe.shapes() == {k: tuple(v.shape) for k, v in recipe.build(Key.seed(5)).state_dict().items()}


def test_images_are_drawn_by_label_and_key() -> None:
    recipe = ImageRecipe((3, 8, 8), 3, 2, 2)
    tensors = recipe.build(Key.seed(0)).state_dict()
    one, again, other = (recipe.draw(tensors, torch.tensor([0, 2]), Key.seed(s)) for s in (1, 1, 2))
    assert one.shape == (2, 3, 8, 8)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert recipe.draw(tensors, torch.zeros(0, dtype=torch.int64), Key.seed(1)).shape == (0, 3, 8, 8)


def test_a_network_with_other_tensors_is_refused() -> None:
    recipe = ImageRecipe((1, 8, 8), 2, 2, 2)
    with pytest.raises(KeyError):
        recipe.draw({}, torch.tensor([0]), Key.seed(0))


def test_matching_brings_the_means_closer() -> None:
    features = fourier(features=100)
    dark, bright = torch.full((1, 1, 8, 8), 0.05), torch.full((1, 1, 8, 8), 0.95)
    means = torch.cat([features(dark), features(bright)])
    network = ImageRecipe((1, 8, 8), 2, 2, 2).build(Key.seed(0))

    def gap() -> float:
        with torch.no_grad():
            z, y = torch.randn(40, 2, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 2
            made = features(network(z, y))
            return float(sum((made[y == c].mean(0) - means[c]).norm() for c in (0, 1)))

    before = gap()
    match(
        network,
        features,
        means,
        present=torch.tensor([True, True]),
        how=MatchingSteps(40, 8, 50, 0.02),
        key=Key.seed(2),
    )
    assert gap() < 0.8 * before


def test_where_no_class_is_there_nothing_is_trained() -> None:
    network = ImageRecipe((1, 8, 8), 2, 2, 2).build(Key.seed(0))
    before = [p.detach().clone() for p in network.parameters()]
    absent = torch.tensor([False, False])
    match(network, fourier(), torch.zeros(2, 20), present=absent, how=MatchingSteps(5, 4, 5, 0.1), key=Key.seed(2))
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters()))
