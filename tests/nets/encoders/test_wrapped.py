"""A user's own module as an encoder: its layers, its words, its digest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from prismfl.errors import UserError
from prismfl.nets.encoders.checks import check_encoder
from prismfl.nets.encoders.wrapped import UNSAID, Wrapped, one_line, rows_of
from tests.nets.encoders.tiny import Maps

IMAGES = torch.rand(5, 1, 8, 8)


def test_maps_are_averaged_and_rows_stay() -> None:
    own = check_encoder(Wrapped(Maps(), "pkg:build"), IMAGES)
    found = own.activations(IMAGES)
    maps = Maps()(IMAGES)
    assert own.layers == ("maps", "rows")
    assert torch.allclose(found["maps"], maps["maps"].mean((2, 3)))
    assert torch.allclose(found["rows"], maps["rows"])
    assert not any(p.requires_grad for p in own.parameters())


def test_a_tensor_or_several_have_layers_too() -> None:
    rows = torch.rand(2, 3)
    assert list(rows_of(rows, "x")) == ["out"]
    assert list(rows_of((rows, rows), "x")) == ["0", "1"]
    assert rows_of(rows.double(), "x")["out"].dtype == torch.float32


@pytest.mark.parametrize("answer", [torch.rand(2, 3, 4), torch.ones(2, 3).long(), "text", None])
def test_anything_else_is_refused(answer: object) -> None:
    with pytest.raises(UserError, match="layer 'out'"):
        rows_of(answer, "x")


def test_it_counts_as_pretrained_unless_it_says_otherwise() -> None:
    assert (Wrapped(Maps(), "x").pretrained, Wrapped(Maps(), "x").trained_on) == (True, "a leaflet")
    plain = nn.Flatten()
    assert (Wrapped(plain, "x").pretrained, Wrapped(plain, "x").trained_on) == (True, UNSAID)
    plain.pretrained = False  # type: ignore[assignment]
    assert not Wrapped(plain, "x").pretrained
    assert one_line("a\nb\x1b[31m" + "c" * 500) == ("a b [31m" + "c" * 500)[:200]


def test_a_batch_norm_no_longer_learns() -> None:
    own = Wrapped(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), "x")
    before = own.digest
    check_encoder(own, IMAGES)
    assert own.digest == before


def test_the_digest_is_over_words_and_numbers() -> None:
    changed = Maps()
    with torch.no_grad():
        changed.conv.weight[0] += 1e-3
    assert Wrapped(Maps(), "x").digest == Wrapped(Maps(), "x").digest
    assert len({Wrapped(Maps(), "x").digest, Wrapped(changed, "x").digest, Wrapped(Maps(), "y").digest}) == 3


@pytest.mark.parametrize(("what", "value"), [("channels", 4), ("side", "64"), ("side", True), ("channels", 0)])
def test_sizes_that_cannot_be(what: str, value: object) -> None:
    module = nn.Flatten()
    setattr(module, what, value)
    with pytest.raises(UserError, match=f"Expected {what} of encoder 'x'"):
        Wrapped(module, "x")
