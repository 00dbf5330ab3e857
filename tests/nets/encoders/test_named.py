"""Encoders by name: ours and no others."""

from __future__ import annotations

import pytest
import torch

from prismfl.errors import UserError
from prismfl.nets.encoders.named import BUILDERS, NAMES, built, named, ours
from prismfl.nets.encoders.names import Part
from tests.nets.encoders.tiny import Own


def test_every_name_has_its_builder() -> None:
    assert set(BUILDERS) == set(NAMES)


def test_a_name_with_a_side() -> None:
    found = named("scattering@16")
    assert (found.name, found.side) == ("scattering@16", 16)
    assert found.activations(torch.rand(2, 1, 9, 9))["order0"].shape[0] == 2


@pytest.mark.parametrize("words", ["pkg.mod:build", "net.onnx", "/etc/passwd", "", "scattering+", "auto", "none"])
def test_anything_else_is_no_name(words: str) -> None:
    with pytest.raises(UserError, match="Unknown encoder"):
        named(words)


def test_a_digest_that_is_said_must_be_found() -> None:
    digest = named("scattering").digest
    assert named(f"scattering={digest}").digest == digest
    with pytest.raises(UserError, match=f"has the digest {digest[:16]}..., not {'0' * 16}... as was said"):
        named(f"scattering={'0' * 64}")


def test_parts_are_built_by_whoever_asks() -> None:
    def build(part: Part) -> Own:
        assert part == Part("mine")
        return Own()

    assert built("mine", build).name == "own"
    assert ours(Part("scattering")).name == "scattering"
    assert named("scattering+scattering@16").layers[3:] == tuple(f"scattering@16/order{i}" for i in range(3))
