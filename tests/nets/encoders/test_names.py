"""The words for encoders: names, sides, digests, several side by side."""

from __future__ import annotations

import pytest

from prismfl.errors import UserError
from prismfl.nets.encoders.names import Part, is_ours, name_and_side, parts_of, pinned

DIGEST = "0f" * 32


def test_parts_and_digests() -> None:
    assert parts_of("scattering") == (Part("scattering"),)
    assert parts_of(f"scattering+net.onnx={DIGEST}") == (Part("scattering"), Part("net.onnx", DIGEST))
    assert pinned(f"my=net.onnx={DIGEST}") == Part("my=net.onnx", DIGEST)
    assert pinned("net.onnx=0f") == Part("net.onnx=0f"), "what is no SHA-256 is no digest"


@pytest.mark.parametrize(
    ("words", "told"), [("a+b+c+d+e", "at most 4 encoders"), ("scattering+scattering", "stands twice")]
)
def test_too_many_are_refused(words: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        parts_of(words)


def test_names_and_sides() -> None:
    assert name_and_side("efficientnet-lite0@64") == ("efficientnet-lite0", 64)
    assert name_and_side("scattering") == ("scattering", None)
    assert is_ours("scattering@16")
    assert not is_ours("pkg.mod:build")
    assert not is_ours("scattering/../x")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("scaterring", "did you mean 'scattering'"),
        ("resnet", "known: scattering, efficientnet-lite0"),
        ("efficientnet-lite0@9", "32 to 512 pixels"),
        ("efficientnet-lite0@513", "32 to 512 pixels"),
        ("efficientnet-lite0@", "32 to 512 pixels"),
        ("efficientnet-lite0@6e1", "32 to 512 pixels"),
        ("scattering@٢٨", "8 to 64 pixels"),
    ],
)
def test_a_mistake_is_one_clear_line(words: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as error:
        name_and_side(words)
    assert "\n" not in str(error.value)
