"""The deep tanh network of the gradient-leakage literature."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.classifier import MODELS, build, size_of
from prismfl.rng import Key


@pytest.mark.parametrize("side", [28, 32])
def test_its_layers_are_those_of_the_literature(side: int) -> None:
    classifier, _ = build("tanh-convnet:2", (3, side, side), 10, key=Key.seed(0))
    layers = list(classifier.module.modules())
    assert [layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)] == [2, 4, 4, 8, 8, 8, 8, 8]
    assert [layer.in_features for layer in layers if isinstance(layer, nn.Linear)] == [36 * 2]


def test_a_record_does_not_depend_on_its_batch() -> None:
    classifier, params = build("tanh-convnet:2", (1, 12, 12), 3, key=Key.seed(0))
    x = torch.rand(5, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([classifier.logits(params, one[None]) for one in x])
    torch.testing.assert_close(classifier.logits(params, x), alone, rtol=1e-4, atol=1e-5)


def test_images_that_vanish_under_its_pooling_are_refused() -> None:
    with pytest.raises(UserError, match="at least 9 pixels a side, got 8x8"):
        build("tanh-convnet", (1, 8, 8), 10, key=Key.seed(0))


@pytest.mark.parametrize("name", [*MODELS, "convnet:8", "mlp:5"])
def test_the_size_is_told_without_room_for_it(name: str) -> None:
    _, params = build(name, (1, 16, 16), 3, key=Key.seed(0))
    assert size_of(name, (1, 16, 16), 3) == sum(p.numel() for p in params.values())


def test_the_size_of_what_nobody_can_hold() -> None:
    assert size_of("mlp:999999999", (1, 16, 16), 3) > 10**11
    with pytest.raises(UserError, match="nine digits"):
        size_of("mlp:" + "9" * 5000, (1, 16, 16), 3)
    with pytest.raises(UserError, match="Unknown model"):
        size_of("tree", (1, 16, 16), 3)


@pytest.mark.parametrize(
    ("model", "least"), [("convnet", 8), ("lenet", 4), ("sigmoid-lenet", 1), ("tanh-convnet:4", 9)]
)
def test_images_that_a_network_cannot_take_are_refused_in_a_line(model: str, least: int) -> None:
    name = model.partition(":")[0]
    words = f"Model '{name}' needs square images of at least {least} pixels a side, got"
    for height, width in ((least - 1, least - 1), (32, 24), (24, 32)):
        with pytest.raises(UserError) as error:
            build(model, (3, height, width), 2, key=Key.seed(0))
        assert str(error.value) == f"{words} {height}x{width}; declare image_size, or use mlp or logreg."
    classifier, params = build(model, (3, least, least), 2, key=Key.seed(0))
    assert classifier.logits(params, torch.rand(2, 3, least, least)).shape == (2, 2)
    assert build("mlp", (3, 1, 2), 2, key=Key.seed(0))
