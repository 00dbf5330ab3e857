"""Planted bugs of the auditor and the scorers: an attack that looks at nothing, a truth that is another one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.adversary.attacks import membership_synthetic
from prismfl.adversary.scores import membership, population
from prismfl.core import trial
from prismfl.runs.reopen import Reopened
from tests.adversary import test_attack as attack_tests
from tests.adversary import test_inversion as inversion_tests
from tests.adversary import test_membership_synthetic as copy_tests
from tests.cli import test_attack as command_tests
from tests.core import test_trial as trial_tests
from tests.mutations.planting import Bug, Check


def plain(test: object) -> Check:
    return lambda folder, monkeypatch: test()  # type: ignore[operator]


def replay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command_tests.test_truth_is_the_poisson_sample_behind_a_noisy_gradient(folder)


def once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial_tests.test_a_method_asked_once_says_what_it_would_in_a_round(folder)


BUGS = [
    Bug(
        "the auditor is shown nothing",
        trial,
        "ask_door",
        "answer = question(door if watch is None else WatchedRecords(door, watch))",
        "answer = question(door)",
        plain(trial_tests.test_doors_of_classes_are_watched_and_paid_for_in_parallel),
    ),
    Bug(
        "a method asked once has a door without its noise",
        trial,
        "ask_door",
        "door = PrivateRecords(records, declared=declared, classes=classes, noise=noise, **more)",
        "door = PrivateRecords(records, declared=declared, classes=classes, noise=Key.seed(0).noise(), **more)",
        once,
    ),
    Bug(
        "copies are counted by their place in a chunk",
        membership_synthetic,
        "exact_copies",
        "found.append(pairs + torch.tensor([i, 0]))",
        "found.append(pairs)",
        plain(copy_tests.test_exact_copies_are_counted_and_neighbours_are_not),
    ),
    Bug(
        "a copy of two members counts twice",
        membership,
        "copied",
        "len(torch.unique(found[(found[:, 1] < truth.members) == member, 0]))",
        "len(found[(found[:, 1] < truth.members) == member, 0])",
        plain(attack_tests.test_a_synthetic_record_counts_once_however_many_members_it_copies),
    ),
    Bug(
        "no attack is held against the bound",
        membership,
        "judged",
        "if cost is None or not cost.private:",
        "if True:",
        plain(attack_tests.test_an_attack_above_the_bound_is_said_to_be),
    ),
    Bug(
        "the advantage on members is that on everybody",
        population,
        "attribute_advantage",
        "float(right_members.double().mean()), float(right_others.double().mean())",
        "float(right_others.double().mean()), float(right_others.double().mean())",
        plain(inversion_tests.test_attributes_of_memorised_rows_are_guessed),
    ),
    Bug(
        "the truth is another site's batch",
        Reopened,
        "_replayed",
        "job.simulated_noise(site, state.round).noise(),",
        "job.simulated_noise('site-1', state.round).noise(),",
        replay,
    ),
]
