"""Stages of the work are told to whoever listens, and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prismfl.stages import listening, tell, track


def test_every_item_is_told_when_it_is_done() -> None:
    heard: list[tuple[str, int, int]] = []
    with listening(lambda *told: heard.append(told)):
        assert list(track("ab", "reading", 2)) == ["a", "b"]
        tell("writing", 1, 4)
    assert heard == [("reading", 0, 2), ("reading", 1, 2), ("reading", 2, 2), ("writing", 1, 4)]


def test_an_item_may_count_for_several_and_never_for_more_than_there_are() -> None:
    heard: list[int] = []
    with listening(lambda what, done, total: heard.append(done)):
        list(track([[1, 2], [3, 4]], "rows", 3, each=len))
    assert heard == [0, 2, 3]


def test_without_a_listener_nothing_happens_and_one_inside_hears_alone() -> None:
    outer: list[str] = []
    inner: list[str] = []
    tell("nobody", 0, 1)
    with listening(lambda what, *_: outer.append(what)):
        with listening(lambda what, *_: inner.append(what)):
            tell("inside", 0, 1)
        tell("outside", 0, 1)
    tell("nobody", 0, 1)
    assert (outer, inner) == (["outside"], ["inside"])


def test_a_listener_is_gone_after_an_error() -> None:
    heard: list[str] = []

    def broken() -> Iterator[int]:
        yield 1
        raise ValueError

    with pytest.raises(ValueError), listening(lambda what, *_: heard.append(what)):
        list(track(broken(), "a", 2))
    told = len(heard)
    tell("b", 0, 1)
    assert len(heard) == told
