"""The bank of random networks: what a view and more layers do, and the norm that the sensitivity rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prismfl.nets.augment import warp
from prismfl.nets.random_nets import random_nets
from prismfl.rng import Key

PUBLIC = torch.rand(40, 1, 20, 20, generator=torch.Generator().manual_seed(0))
BANK: dict[str, Any] = {"count": 2, "width": 4, "features": 6, "key": Key.seed(0)}


@pytest.mark.parametrize("more", [{}, {"views": 1.0}, {"depth": 3}, {"depth": 2, "views": 0.5}])
def test_an_answer_has_norm_one(more: dict[str, Any]) -> None:
    for net in random_nets(PUBLIC, **BANK, **more):
        assert torch.allclose(net(PUBLIC * 3 - 1).norm(dim=1), torch.ones(40), atol=1e-5)


def test_a_view_is_the_same_network_on_moved_images() -> None:
    first, second = random_nets(PUBLIC, **BANK, views=1.0)
    assert first.view is not None
    assert second.view is not None
    assert not torch.allclose(first.view, second.view)
    straight = replace(first, view=None)
    assert torch.allclose(first(PUBLIC), straight(warp(PUBLIC, first.view.expand(40, 6))), atol=1e-6)
    assert not torch.allclose(first(PUBLIC), straight(PUBLIC), atol=0.05)


def test_more_layers_answer_as_well_and_leave_the_last_one_as_it_is() -> None:
    (one, _), (two, _) = random_nets(PUBLIC, **BANK), random_nets(PUBLIC, **BANK, depth=2)
    assert [tuple(p.shape) for p in two.projections] == [(4 * 2 * 2, 6), (4 * 5 * 5, 6)]
    assert torch.equal(one.projections[0], two.projections[0])
    assert not torch.allclose(replace(two, projections=two.projections[:1])(PUBLIC), two(PUBLIC), atol=0.05)


def test_images_are_moved_through_the_view() -> None:
    """The matching needs the slope of an answer by the pixels, through the warp."""
    net = random_nets(PUBLIC, **BANK, views=1.0, depth=2)[0]
    x = PUBLIC[:3].clone().requires_grad_()
    (slope,) = torch.autograd.grad(net(x)[:, 0].sum(), x)
    assert float(slope.abs().sum()) > 0
