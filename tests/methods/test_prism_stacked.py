"""Statistics as they arrive: the same numbers as a list of them, held once."""

from __future__ import annotations

import pytest
import torch

from prismfl.methods.prism.stacked import FIRST, Stacked, stack


def test_a_stack_is_what_torch_makes_of_the_list() -> None:
    releases = [{"a": torch.full((2, 3), float(i)), "b": torch.tensor([i])} for i in range(2 * FIRST + 3)]
    found = Stacked()
    for release in releases:
        found.add(release)
    assert len(found) == len(releases)
    for name in ("a", "b"):
        assert stack(found, name).equal(torch.stack([release[name] for release in releases]))
        assert stack(releases, name).equal(stack(found, name))
    assert [int(release["b"]) for release in found] == list(range(2 * FIRST + 3))
    assert [int(release["b"]) for release in found[1:3]] == [1, 2]
    assert int(found[-1]["b"]) == 2 * FIRST + 2
    with pytest.raises(IndexError):
        found[len(releases)]


def test_what_was_added_is_a_copy_and_what_is_read_is_none() -> None:
    found, first = Stacked(), {"a": torch.zeros(2)}
    found.add(first)
    first["a"].add_(1.0)
    assert stack(found, "a").tolist() == [[0.0, 0.0]]
    assert found[0]["a"].data_ptr() == stack(found, "a").data_ptr()
