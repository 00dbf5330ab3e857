"""What methods share whose sites send images: labels, first images, the pool, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from prismfl.core.payloads import SyntheticSet
from prismfl.errors import BoundaryError
from prismfl.methods.landscape import image_exchange
from prismfl.methods.landscape.image_exchange import Declared
from prismfl.methods.landscape.matching import Walk
from tests.laws.world import make_job

TASK = make_job("fedlap-dp").task


def made(value: float, count: int = 3) -> dict[str, SyntheticSet]:
    return {"images": SyntheticSet.of(torch.full((count, 1, 8, 8), value), torch.arange(count))}


def test_labels_are_every_class_in_order() -> None:
    assert image_exchange.labels_of(Declared(images=2), TASK, "site-1").tolist() == [0, 0, 1, 1, 2, 2]


def test_public_classes_are_a_sites_own() -> None:
    cfg = Declared(images=2, public_classes=((0, 1), (2, 0), (1, 2)))
    assert image_exchange.labels_of(cfg, TASK, "site-1").tolist() == [2, 2, 0, 0]
    assert image_exchange.shapes(cfg, TASK)["images"]["y"] == ("int64", (4,))


def test_what_is_declared_public_is_said() -> None:
    assert image_exchange.advice(Declared(), TASK) == []
    (line,) = image_exchange.advice(Declared(public_classes=((0,), (1,), (2,))), TASK)
    assert line == (
        "which classes a site holds is declared public (site-0: a; site-1: b; site-2: c); "
        "the guarantee does not cover it."
    )


def test_the_pool_is_everybodys_images_by_site() -> None:
    x, y = image_exchange.pool({"site-1": made(2.0), "site-0": made(1.0)}, TASK)
    assert x[:, 0, 0, 0].tolist() == [1.0] * 3 + [2.0] * 3
    assert y.tolist() == [0, 1, 2, 0, 1, 2]


def test_images_over_twice_as_long_as_the_median_are_shortened() -> None:
    x, _ = image_exchange.pool({"site-0": made(1.0), "site-1": made(1.0), "site-2": made(50.0)}, TASK)
    assert x[6:, 0, 0, 0].tolist() == pytest.approx([2.0] * 3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_images_that_are_not_finite_are_not_sent(value: float) -> None:
    with pytest.raises(BoundaryError) as error:
        image_exchange.sealed_images(
            torch.full((1, 1, 2, 2), value), torch.tensor([0]), image_lr=7.0, site="site-1", round=3
        )
    assert str(error.value) == (
        "Images of site-1 in round 4 are not finite at image_lr 7; nothing was sent. Use a smaller image_lr (or lr)."
    )


def test_the_last_state_holds_the_images_and_others_do_not() -> None:
    done = Walk({"w": torch.zeros(1)}, 1.5, 4)
    x, y = torch.zeros(1, 1, 2, 2), torch.tensor([0])
    assert set(image_exchange.after(done, x, y, last=False)) == {"model", "taken"}
    last = image_exchange.after(done, x, y, last=True)
    assert set(last) == {"model", "taken", "synthetic"}
    assert float(last["taken"].tensors["radius"]) == 1.5
    assert int(last["taken"].tensors["steps"]) == 4
