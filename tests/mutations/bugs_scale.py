"""Bugs of many sites on one machine: order, second charges, forks, and what is made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prismfl.methods import robust
from prismfl.privacy.ledger.book import Ledger
from prismfl.transport import conductor, parts
from prismfl.transport.conductor import Conductor
from prismfl.transport.flower.adapter import GridPost
from prismfl.transport.inbox import MemoryInbox
from prismfl.transport.workers import Workers
from tests.mutations.planting import Bug, Check
from tests.transport import test_conductor, test_in_process, test_parts, test_workers


def at(test: Callable[..., None], *arguments: object) -> Check:
    """A test that takes a folder last."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        test(*arguments, folder)

    return check


def in_parts(test: Callable[..., None], *arguments: object) -> Check:
    """A test of answers in parts, which are small there."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(parts, "PART", test_parts.SMALL)
        monkeypatch.setattr(conductor, "PART", test_parts.SMALL)
        test(*arguments, folder)

    return check


BUGS = [
    Bug(
        "a round is open until its deadline whatever was said",
        Conductor,
        "_gather",
        "min(end, self.clock() + grace)",
        "end",
        at(test_conductor.test_a_round_closes_a_grace_after_its_quorum),
    ),
    Bug(
        "a round closes before its quorum",
        Conductor,
        "_gather",
        "if not enough and len(box) >= quorum:",
        "if not enough:",
        at(test_conductor.test_without_a_grace_or_below_the_quorum_a_round_stays_open, 3, 5.0),
    ),
    Bug(
        "everybody waits for who is away",
        Conductor,
        "_all_away",
        "return all(",
        "return False and all(",
        at(test_conductor.test_nobody_waits_for_a_site_that_never_came),
    ),
    Bug(
        "parts are believed without their digest",
        parts.Coming,
        "_whole",
        "!= self.whole.digest",
        '== ""',
        in_parts(test_parts.test_a_malformed_part_costs_its_sender_the_round_and_no_more, "other bytes"),
    ),
    Bug(
        "what has come is thrown away when it is asked for again",
        GridPost,
        "_moving",
        "return coming.again()",
        "return False",
        in_parts(test_parts.test_a_transfer_that_moves_is_not_begun_again),
    ),
    Bug(
        "what was under way to a restarted site is waited for",
        parts.Coming,
        "again",
        "self.wanted.extendleft(sorted(self.flying, reverse=True))",
        "",
        in_parts(test_parts.test_what_was_under_way_to_a_site_that_was_restarted_is_asked_for_again),
    ),
    Bug(
        "a full disk loses a charged answer",
        parts.Spool,
        "cut",
        "    return answer\n    self.forget(",
        "    return replace(answer, kind='parts')\n    self.forget(",
        in_parts(test_parts.test_an_answer_for_which_there_is_no_room_goes_whole),
    ),
    Bug(
        "a site that is back is asked half-way to the deadline",
        Conductor,
        "_ask",
        "asked.pop(site, None)",
        "pass",
        at(test_conductor.test_a_site_that_was_restarted_in_a_round_is_asked_when_it_is_back),
    ),
    Bug(
        "a hello that was lost is not said again",
        Conductor,
        "_greet",
        "if not name and place not in there",
        "if False",
        at(test_conductor.test_a_site_that_went_before_it_said_who_it_is_is_asked_when_it_is_back),
    ),
    Bug(
        "a part of any file is handed out",
        parts.Spool,
        "part",
        "if not raw:",
        "if False:",
        in_parts(test_parts.test_a_site_hands_out_nothing_else, "../site.toml 0"),
    ),
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
