"""Bugs around the charge: computed before it is paid, remembered what was refused, another ledger, figures too small."""

# ruff: noqa: E501  (a planted line is quoted as it stands)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prismfl.core import once as one_release
from prismfl.core import rounds
from prismfl.core.job import Job
from prismfl.methods.averaging import dp_fedavg_client
from prismfl.methods.prism import statistics
from prismfl.privacy.ledger import care
from prismfl.privacy.ledger.book import Ledger
from prismfl.report import ledger_export
from prismfl.runs import planning, starting
from prismfl.site.office import Office
from prismfl.synth import tables as synth_table
from tests import test_whole_cost as tests
from tests.methods import test_prism as prism_tests
from tests.mutations.planting import Bug, Check
from tests.privacy import test_care as care_tests
from tests.report import test_ledger_export as export_tests


def own(test: Callable[..., None], *arguments: object, folder: bool = True) -> Check:
    """A test of the whole cost, with a folder and a ledger of its own."""

    def check(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("PRISMFL_LEDGER", str(place / "ledger"))
        test(place / "test", *arguments) if folder else test(*arguments)

    return check


def kept(test: Callable[[Path, Path], None]) -> Check:
    """A test of a ledger as a whole."""

    def check(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Ledger.open(place / "home" / "ledger.sqlite") as ledger:
            ledger.dataset("patients", records=[b"1", b"2"], cap=care_tests.CAP)
        test(ledger.path, place)

    return check


BUGS = [
    Bug(
        "a restored backup gives budget back",
        care,
        "restore",
        "if gone != 0 and not lost:",
        "if False:",
        kept(care_tests.test_an_old_copy_does_not_give_budget_back),
    ),
    Bug(
        "a loss is forgiven by the site's own cap",
        Ledger,
        "set_cap",
        '{"by_hand": True} if by_hand else {}',
        '{"by_hand": True}',
        kept(care_tests.test_an_old_copy_does_not_give_budget_back),
    ),
    Bug(
        "a moved ledger goes on in both places",
        care,
        "move",
        'ledger.note("move", {"to": folder.name})',
        "pass",
        kept(care_tests.test_a_moved_ledger_spends_in_one_place),
    ),
    Bug(
        "an auditor reads the number of records",
        ledger_export,
        "_event",
        "if key in _TOLD",
        "if key != 'digest'",
        own(export_tests.test_one_record_more_does_not_show),
    ),
    Bug(
        "computed before it is charged",
        rounds,
        "site_step",
        "    cost = job.round_cost(state.round, first=first)\n",
        "    cost = job.round_cost(0, first=first)\n        with __import__('contextlib').suppress(IndexError):\n            _release(job, state, host, cost, masking)\n",
        own(tests.test_a_round_outside_the_plan_computes_nothing_and_leaves_no_memory),
    ),
    Bug(
        "a failed round may be tried again by a server",
        rounds,
        "site_step",
        "again=not host.final",
        "again=True",
        own(tests.test_what_fails_after_the_charge_is_charged_final_and_forgotten),
    ),
    Bug(
        "a simulation that was broken off cannot go on",
        rounds,
        "site_step",
        "again=not host.final",
        "again=False",
        own(tests.test_a_simulation_that_was_broken_off_is_computed_again_for_the_same_charge),
    ),
    Bug(
        "the meter is not compared with the charge",
        rounds,
        "check_cost",
        "if metered != charged:",
        "if False:",
        own(tests.test_a_method_that_asks_more_than_its_plan_is_stopped_and_nothing_leaves),
    ),
    Bug(
        "runs of like names share a folder",
        Office,
        "_run_folder",
        "named = f\"{description['run']}\\0{description['digest']}\"",
        "named = str(description['run']).replace(':', '-')[:1]",
        own(tests.test_runs_of_like_names_share_nothing, ("x-0", "x:0")),
    ),
    Bug(
        "a held release is remembered",
        Ledger,
        "fill",
        '"held": held}',
        '"held": False}',
        own(tests.test_a_denied_release_enters_nothing_later),
    ),
    Bug(
        "noise without the settings",
        Job,
        "simulated_noise",
        "self.digest, place, round",
        "place, round",
        own(tests.test_no_two_runs_share_noise, folder=False),
    ),
    Bug(
        "own data seeded by default",
        planning,
        "settled",
        '"operating-system" if own and config.seed is None else "seeded"',
        '"seeded"',
        own(tests.test_own_data_are_not_seeded_unless_asked_and_a_seed_is_called_by_its_name),
    ),
    Bug(
        "a seed called differential privacy",
        planning,
        "guarantee_words",
        '"differential privacy" if noise == DEPLOYMENT else NO_PROTECTION',
        '"differential privacy"',
        own(tests.test_own_data_are_not_seeded_unless_asked_and_a_seed_is_called_by_its_name),
    ),
    Bug(
        "a ledger for each file",
        one_release,
        "release_once",
        "path = ledger_path() if ledger is None",
        "path = ledger_path().parent / (str(holder.name).replace('/', '-') + '.sqlite') if ledger is None",
        own(tests.test_own_data_have_one_ledger_whatever_command_or_name),
    ),
    Bug(
        "people are not on the ledger",
        Ledger,
        "dataset",
        "for unit in set(units)",
        "for unit in ()",
        own(tests.test_the_same_patients_in_another_file_are_the_same_budget),
    ),
    Bug(
        "data read once are never looked at again",
        Office,
        "_declare",
        "dataset = ledger.dataset(name_on_ledger(config), records=own.prints, units=unit_prints(own.records))",
        "dataset = ledger._state.names.get(name_on_ledger(config)) or ledger.dataset(name_on_ledger(config), records=own.prints)",
        own(tests.test_data_replaced_on_the_way_are_fingerprinted),
    ),
    Bug(
        "a seed under a cap",
        one_release,
        "refuse_seeded",
        "if cap is not None and not deployed:",
        "if False:",
        own(tests.test_python_fits_add_up_and_a_cap_ends_them, folder=False),
    ),
    Bug(
        "who takes part lowers the charge",
        dp_fedavg_client,
        "plan",
        "Cost.gaussian(cfg.noise,",
        "Cost.gaussian(cfg.noise, rate=task.participation,",
        own(tests.test_who_takes_part_lowers_no_charge, folder=False),
    ),
    Bug(
        "the run before is left out",
        starting,
        "whole_cost",
        "if start is None:",
        "if True:",
        own(tests.test_a_run_that_starts_from_another_states_both),
    ),
    Bug(
        "stopping early lowers the charge",
        statistics,
        "round_cost",
        "parts_of_budget(cfg)[round]",
        "parts_of_budget(cfg)[0]",
        own(prism_tests.test_an_adaptive_site_stops_when_its_release_is_clear_and_pays_the_plan),
    ),
    Bug(
        "the size of a table from the data",
        synth_table,
        "_declared_size",
        "if declared is None:",
        "declared = declared or len(table.holder.records)\n    if declared is None:",
        own(tests.test_the_size_of_a_synthetic_table_never_comes_from_the_data),
    ),
]
