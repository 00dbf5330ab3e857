"""Bugs of secure sums under a server that lies: signatures, lists, what is bound into a mask, who shares the noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.privacy import shares
from prismfl.privacy.shares import Rules, Secrecy
from prismfl.secure import protocol as secure
from prismfl.secure.roster import Roster
from prismfl.secure.sums import Party
from tests.hostile import test_sums as hostile
from tests.mutations.planting import Bug, Check


def at(test: object, *arguments: object) -> Check:
    """A test that takes a folder and its arguments."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        test(folder, *arguments)  # type: ignore[operator]

    return check


def on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hostile.test_nothing_leaves_that_is_not_on_the_disk_first(folder, monkeypatch)


def told_another_quorum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hostile.test_sites_that_were_told_different_things_cannot_be_combined(folder, {"secrecy": Secrecy(3)})


def two_sums(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile.test_a_quorum_that_hides_nobody_is_refused(hostile.ABCDE, Secrecy(3, 1))


BUGS = [
    Bug(
        "sum keys count without a signature",
        secure,
        "_checked",
        "if not roster.signed(rules, site",
        "if False and not roster.signed(rules, site",
        at(hostile.test_keys_that_the_server_made_are_refused),
    ),
    Bug(
        "the masks know the run and the round, not what was agreed",
        Roster,
        "bind",
        "[asdict(rules), ",
        "[rules.label, ",
        told_another_quorum,
    ),
    Bug(
        "the noise is shared by all honest sites, though the server chooses who is in the sum",
        Roster,
        "_believe",
        "dishonest <= rules.colluding",
        "rules.sharing <= self.honest",
        at(hostile.test_a_site_shares_the_noise_with_those_it_believes_in, 5, 4, Secrecy(3), False),
    ),
    Bug(
        "the noise is shared by all enrolled sites",
        shares,
        "noisy_steps",
        "rules.share_deviation,",
        "rules.share_deviation * math.sqrt(rules.sharing / len(rules.sites)),",
        at(hostile.test_what_opens_holds_the_noise_that_was_charged, Secrecy(4, 1), "e", "d"),
    ),
    Bug(
        "shares leave for a list that one site has signed",
        secure,
        "_last_turns",
        "if len(agreed) < party.rules.quorum:",
        "if len(agreed) < 1:",
        at(hostile.test_shares_leave_only_for_a_list_that_a_quorum_has_signed),
    ),
    Bug(
        "one signature counts for several sites",
        secure,
        "_last_turns",
        'if roster.signed(party.rules, s, "sent"',
        'if roster.signed(party.rules, "a", "sent"',
        at(hostile.test_shares_leave_only_for_a_list_that_a_quorum_has_signed),
    ),
    Bug(
        "a second list of senders is confirmed",
        Party,
        "confirm",
        "if self._confirmed and self._confirmed != tuple(sorted(sent)):",
        "if False:",
        at(hostile.test_one_list_is_confirmed_and_no_other_ever),
    ),
    Bug(
        "the answer leaves before the list is on the disk",
        secure,
        "_last_turns",
        "    _keep(place, party)\n",
        "",
        on_the_disk,
    ),
    Bug(
        "a site confirms that it has dropped out",
        Party,
        "confirm",
        "if not self._sent or self.name not in sent:",
        "if not self._sent:",
        at(hostile.test_a_site_confirms_no_list_without_itself_or_with_ghosts),
    ),
    Bug(
        "a quorum of colluding sites and half of the others opens two sums",
        Rules,
        "__post_init__",
        "2 * self.quorum <= n + self.colluding",
        "2 * self.quorum <= n",
        two_sums,
    ),
    Bug(
        "letters are read after the charge",
        secure,
        "_numbers",
        "    party.take(letters)  #",
        "    #",
        at(hostile.test_letters_are_whole_and_read_once),
    ),
]
