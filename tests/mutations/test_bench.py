"""The planted-bug bench: every check is green as it stands, and turns red when its bug is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.errors import PrismError
from tests.mutations import (
    bugs,
    bugs_adversary,
    bugs_cost,
    bugs_data,
    bugs_draws,
    bugs_filter,
    bugs_hostile,
    bugs_kernels,
    bugs_operate,
    bugs_parsers,
    bugs_report,
    bugs_robust,
    bugs_scale,
    bugs_sitedata,
    bugs_sums,
)
from tests.mutations.planting import Bug, forget

pytestmark = pytest.mark.bench

PARTS = (
    bugs, bugs_adversary, bugs_cost, bugs_data, bugs_draws, bugs_filter, bugs_hostile, bugs_kernels, bugs_operate,
    bugs_parsers, bugs_report, bugs_robust, bugs_scale, bugs_sitedata, bugs_sums,
)  # fmt: skip
BUGS = [bug for part in PARTS for bug in part.BUGS]

RED = (AssertionError, PrismError, pytest.fail.Exception)
"""How a check turns red. Any other exception would be the bug's own crash, not its discovery."""


def test_the_bench_is_as_large_as_promised() -> None:
    assert len(BUGS) >= 120
    assert len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bug.check(tmp_path / "sound", patch)
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        with pytest.raises(RED):
            bug.check(tmp_path / "planted", patch)
    forget()
