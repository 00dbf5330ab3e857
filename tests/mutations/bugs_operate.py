"""Bugs around a running federation: its monitor's page, its desk, its servers and keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prismfl.report import doctor
from prismfl.site import approvals, servers, watching
from prismfl.site.approvals import Approvals
from prismfl.site.egress import EgressLog
from prismfl.site.office import Office
from prismfl.transport import local
from prismfl.transport.flower.adapter import GridPost
from tests.mutations.planting import Bug, Check
from tests.report import test_doctor as doctor_tests
from tests.site import test_approvals as approval_tests
from tests.site import test_egress as egress_tests
from tests.site import test_servers as server_tests
from tests.site import test_watching as watching_tests
from tests.transport import test_flower as flower_tests
from tests.transport import test_local as local_tests


def here(test: Callable[..., None], *arguments: object) -> Check:
    """A test that takes a folder."""

    def check(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place.mkdir(parents=True, exist_ok=True)
        test(place, *arguments)

    return check


def two_servers(test: Callable[[Path], None]) -> Check:
    """A test of a site with two servers."""

    def check(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        test(server_tests.made(place))

    return check


def plain(test: Callable[[], None]) -> Check:
    """A test that takes nothing."""
    return lambda place, monkeypatch: test()


BUGS = [
    Bug(
        "a monitor reads what others' runs have cost",
        watching,
        "_budget",
        "if charge.run in runs",
        "if True",
        here(watching_tests.test_other_records_give_the_same_page),
    ),
    Bug(
        "a monitor reads when an answer was ready",
        watching,
        "last_answer",
        "return math.ceil(moment / every) * every if every > 0 else moment",
        "return moment",
        plain(watching_tests.test_an_answer_is_told_when_it_leaves_not_when_it_is_ready),
    ),
    Bug(
        "any name that points here is this machine",
        local,
        "is_own_host",
        'given in tuple(f"{name}:{port}" for name in NAMES)',
        'str(given).endswith(f":{port}")',
        plain(local_tests.test_whose_name_counts),
    ),
    Bug(
        "one person under two spellings is two",
        approvals,
        "_same",
        'unicodedata.normalize("NFKC", name).casefold()',
        "name",
        here(approval_tests.test_two_people_are_two_people),
    ),
    Bug(
        "a decision is not in the log",
        Approvals,
        "decide",
        "EgressLog(self.site).decision(",
        "(lambda *told, **more: None)(",
        here(approval_tests.test_a_decision_has_a_name_and_a_reason_in_log_and_ledger),
    ),
    Bug(
        "rows of the egress log do not follow from each other",
        EgressLog,
        "_append",
        '"previous": _last(file)',
        '"previous": _start(b"")',
        here(egress_tests.test_rows_are_linked_and_the_head_stands_for_all),
    ),
    Bug(
        "a torn line takes the next row with it",
        EgressLog,
        "_append",
        'if file.read(1) != b"\\n":',
        "if False:",
        here(egress_tests.test_a_torn_line),
    ),
    Bug(
        "a server gets what was released to another",
        Office,
        "_pin",
        'told = f"{digest} {self.server}".rstrip()',
        "told = digest",
        two_servers(server_tests.test_a_server_does_not_get_what_was_released_to_another),
    ),
    Bug(
        "no config in common allows any",
        servers,
        "narrowed",
        " or [NO_CONFIG]",
        "",
        plain(server_tests.test_no_server_may_do_more_than_the_site),
    ),
    Bug(
        "the keys of a run are read once",
        GridPost,
        "_revoked",
        "if self._secured and place in self._keys and self._keys[place] not in names:",
        "if False:",
        here(flower_tests.test_a_revoked_site_is_nobody_at_once, False),
    ),
    Bug(
        "the doctor counts what was left out",
        doctor,
        "_data",
        'f"{site_data.facts(config).kind}, declared"',
        'f"{site_data.load(folder, config).left_out} left out"',
        here(doctor_tests.test_one_record_more_does_not_show),
    ),
]
