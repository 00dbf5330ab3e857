"""Encoders side by side: every layer of every part, under its part's name."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.joined import Joined
from prismfl.nets.encoders.named import named
from prismfl.nets.encoders.scattering import Scattering
from prismfl.nets.encoders.wrapped import Wrapped
from tests.nets.encoders.tiny import Maps, Own

IMAGES = torch.rand(5, 1, 8, 8)


def test_layers_are_prefixed_and_the_same_numbers() -> None:
    both = Joined([Own(), named("scattering@16")])
    assert both.name == "own+scattering@16"
    assert both.layers == ("own/mean", "scattering@16/order0", "scattering@16/order1", "scattering@16/order2")
    found = both.activations(IMAGES)
    alone = Scattering(16).activations(IMAGES)
    assert torch.equal(found["own/mean"], IMAGES.mean((2, 3)))
    assert all(torch.equal(found[f"scattering@16/{layer}"], rows) for layer, rows in alone.items())


def test_layers_that_are_not_known_yet_are_learnt() -> None:
    both = Joined([Scattering(), Wrapped(Maps(), "theirs:build")])
    assert both.layers == ()
    assert check_encoder(both, IMAGES).layers[-2:] == ("theirs:build/maps", "theirs:build/rows")


def test_it_is_pretrained_if_a_part_is_and_says_of_each() -> None:
    assert not Joined([Own(), Scattering()]).pretrained
    both = Joined([Own(), Wrapped(Maps(), "b")])
    assert both.pretrained
    assert both.trained_on == "own: nothing; b: a leaflet"


def test_the_digest_is_over_the_parts_in_their_order() -> None:
    parts = [Own(), named("scattering"), named("scattering@16")]
    digests = [Joined([parts[i] for i in order]).digest for order in ((0, 1), (1, 0), (0, 2))]
    assert len(set(digests)) == 3


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="called the same in 'own\\+own'"):
        Joined([Own(), Own()])
