"""Bugs of many sites on one machine: order, second charges, forks, and what is made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prismfl.methods import robust
from prismfl.privacy.ledger.book import Ledger
from prismfl.transport.inbox import MemoryInbox
from prismfl.transport.workers import Workers
from tests.mutations.planting import Bug, Check
from tests.transport import test_in_process, test_workers


def at(test: Callable[..., None], *arguments: object) -> Check:
    """A test that takes a folder last."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        test(*arguments, folder)

    return check


BUGS = [
    Bug(
        "releases are folded as they arrive",
        MemoryInbox,
        "__init__",
        "sorted(expected, reverse=True)",
        "list(expected)[::-1]",
        at(test_in_process.test_what_is_folded_is_what_the_server_makes_of_all_bit_for_bit, "prism-head"),
    ),
    Bug(
        "every release is held whatever the room",
        MemoryInbox,
        "put",
        "self._room is None or len(raw) <= self._room",
        "True",
        at(test_in_process.test_open_files_and_memory_do_not_grow_with_500_sites, False),
    ),
    Bug(
        "a folded mean forgets that a site is clipped",
        robust.Combining,
        "value",
        "return None if shortened else self._mean.value()",
        "return self._mean.value()",
        at(test_in_process.test_where_a_site_is_clipped_the_releases_are_made_again),
    ),
    Bug(
        "other bytes are made again for the old charge",
        Ledger,
        "made_again",
        "or charge.digest != digest_of(payload)",
        "",
        at(test_in_process.test_a_release_that_comes_out_otherwise_is_not_sent_again),
    ),
    Bug(
        "an open ledger crosses a fork",
        Workers,
        "_forked",
        "ledger.shut()  # no connection may cross a fork",
        "pass",
        at(test_workers.test_sites_are_at_work_in_other_processes_side_by_side),
    ),
    Bug(
        "a dead worker's site is left out at once",
        Workers,
        "_buried",
        "if tries < TRIES:",
        "if False:",
        at(test_workers.test_a_worker_that_is_killed_costs_its_site_nothing_more),
    ),
]
