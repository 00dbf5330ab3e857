"""Siamese augmentation: one drawn change, the same for every image, never from another stream."""

from __future__ import annotations

import pytest
import torch

from prismfl.nets.siamese import OPERATIONS, BehindView, draw

X = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_image_is_changed_by_itself_and_alike(name: str) -> None:
    view = OPERATIONS[name]([0.2, 0.7, 0.4])
    together = view(X)
    assert together.shape == X.shape
    assert torch.allclose(together, torch.cat([view(X[i : i + 1]) for i in range(3)]), atol=1e-6)


@pytest.mark.parametrize("name", ["colour", "crop", "scale", "rotate"])
def test_the_middle_of_every_number_changes_nothing(name: str) -> None:
    assert torch.allclose(OPERATIONS[name]([0.5, 0.5, 0.5])(X), X, atol=1e-5)


def test_a_flip_mirrors_or_does_not() -> None:
    assert torch.equal(OPERATIONS["flip"]([0.4, 0.0, 0.0])(X), X.flip(-1))
    assert torch.equal(OPERATIONS["flip"]([0.6, 0.0, 0.0])(X), X)


def test_a_cutout_blackens_a_square_of_half_the_side() -> None:
    made = OPERATIONS["cutout"]([0.5, 0.5, 0.0])(torch.ones(1, 1, 8, 8))
    assert not made[0, 0, 2:6, 2:6].any()
    assert int(made.sum()) == 64 - 16


def test_brightness_by_hand() -> None:
    """0.7 adds 0.2 to every number; the other two numbers leave it as it is."""
    assert torch.allclose(OPERATIONS["colour"]([0.7, 0.5, 0.5])(X), X + 0.2, atol=1e-5)


def test_a_drawn_view_follows_its_generator() -> None:
    def views(seed: int) -> list[torch.Tensor]:
        g = torch.Generator().manual_seed(seed)
        made = [draw(tuple(OPERATIONS), g) for _ in range(5)]
        return [view(X) for view in made if view is not None]

    assert all(torch.equal(a, b) for a, b in zip(views(1), views(1)))
    assert not all(torch.equal(a, b) for a, b in zip(views(1), views(2)))


def test_without_operations_there_is_no_view_and_no_draw() -> None:
    g = torch.Generator().manual_seed(0)
    before = g.get_state()
    assert draw((), g) is None
    assert torch.equal(g.get_state(), before)


def test_images_can_be_fitted_through_a_view() -> None:
    for name, make in OPERATIONS.items():
        leaf = X.clone().requires_grad_()
        make([0.3, 0.6, 0.8])(leaf).sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None, name
        assert bool(leaf.grad.any()), name


def test_a_network_behind_a_view_sees_the_changed_picture() -> None:
    net = torch.nn.Flatten()
    seen = BehindView(OPERATIONS["flip"]([0.0, 0.0, 0.0]), net)
    assert torch.equal(seen(X), X.flip(-1).flatten(1))
