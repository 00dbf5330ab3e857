"""A release says what it cost, and bytes that do not are no release."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from prismfl.core.payloads import Statistics, encode
from prismfl.core.release import Release
from prismfl.errors import WireError
from prismfl.privacy.cost import Cost

RELEASE = Release("run", "north", 2, {"s": Statistics({"a": torch.ones(2)})}, Cost.gaussian(2.0, times=3), "simulation")


def test_a_release_survives_the_wire() -> None:
    back = Release.decode(RELEASE.encode())
    assert (back.run, back.site, back.round, back.cost, back.noise) == ("run", "north", 2, RELEASE.cost, "simulation")
    assert back.items["s"].digest == RELEASE.items["s"].digest


def test_more_uses_than_a_double_counts_are_refused() -> None:
    """JSON readers elsewhere take numbers for doubles: two counts could be one."""
    assert (
        Release.decode(replace(RELEASE, cost=Cost.gaussian(2.0, times=2**53)).encode()).cost.branches[0][0][1] == 2**53
    )
    with pytest.raises(WireError, match="cost"):
        Release.decode(replace(RELEASE, cost=Cost.gaussian(2.0, times=2**53 + 1)).encode())


@pytest.mark.parametrize("cost", [None, {}, {"unit": "record"}, [], 3, {"branches": [[["gaussian", 1, 1, 1]]]}])
def test_a_cost_that_is_none_is_refused(cost: object) -> None:
    header = {"run": "run", "site": "north", "round": 2, "noise": "simulation"}
    with pytest.raises(WireError, match="cost"):
        Release.decode(encode(RELEASE.items, {**header, "cost": cost}))
    with pytest.raises(WireError, match="not a release"):
        Release.decode(encode(RELEASE.items, header))
