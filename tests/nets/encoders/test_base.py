"""What every encoder is: images as it wants them, a row an image, a digest."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.base import Encoder, fitted, numbers_digest


class Means(Encoder):
    name, layers, trained_on = "means", ("mean",), "nothing"

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"mean": self.factor * images.mean((2, 3)), "more": images}


def test_the_named_layers_are_answered_without_a_graph() -> None:
    images = torch.rand(3, 2, 8, 8)
    found = Means(2.0).activations(images)
    assert list(found) == ["mean"]
    assert torch.equal(found["mean"], 2 * images.mean((2, 3)))
    assert not found["mean"].requires_grad
    assert Means()(images)["mean"].requires_grad


def test_a_number_that_is_not_finite_is_not_raised() -> None:
    """An exception about one private record would be an exact, free answer about it."""
    images = torch.rand(3, 1, 8, 8)
    images[1] = torch.nan
    assert torch.isnan(Means().activations(images)["mean"]).flatten().tolist() == [False, True, False]


def test_no_image_gives_no_row() -> None:
    class Fussy(Means):
        def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            assert len(images)
            return super().look(images)

    assert Fussy().activations(torch.rand(0, 2, 8, 8))["mean"].shape == (0, 2)


def test_another_number_of_rows_is_refused() -> None:
    class Short(Means):
        def look(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"mean": images.mean((2, 3))[1:]}

    with pytest.raises(UserError, match="a row an image"):
        Short().activations(torch.rand(3, 1, 8, 8))


def test_images_are_brought_to_channels_and_side() -> None:
    grey = torch.rand(2, 1, 8, 8)
    assert torch.equal(fitted(grey, channels=3, side=None), grey.expand(-1, 3, -1, -1))
    colour = torch.rand(2, 3, 8, 8)
    assert torch.allclose(fitted(colour, channels=1, side=None), colour.mean(1, keepdim=True))
    assert fitted(grey, channels=None, side=16).shape == (2, 1, 16, 16)
    assert fitted(grey, channels=None, side=8) is grey


def test_the_digest_follows_from_every_number_and_word() -> None:
    assert Means(1.0).digest == Means(1.0).digest
    assert Means(1.0).digest != Means(1.5).digest
    wide = Means(1.0)
    wide.side = 16
    assert wide.digest != Means(1.0).digest
    tensors = {"a": torch.ones(2, dtype=torch.bfloat16), "b": torch.tensor(True), "c": "no tensor"}
    assert numbers_digest("x", tensors) != numbers_digest("x", {**tensors, "b": torch.tensor(False)})
    assert numbers_digest("x", tensors) != numbers_digest("y", tensors)
