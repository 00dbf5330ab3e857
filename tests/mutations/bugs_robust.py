"""Bugs at the server's end: words and numbers of a site that nobody checks, weights that nobody cuts, poison kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismfl.core import rounds
from prismfl.methods import robust
from prismfl.methods.generators import images as generators
from prismfl.methods.generators import marginals
from prismfl.methods.landscape import image_exchange
from prismfl.methods.prism import local as prism_local
from prismfl.methods.prism import statistics
from prismfl.transport.conductor import Conductor
from prismfl.transport.inbox import Inbox
from tests.hostile import test_sites as sites
from tests.hostile import test_sites_remote as remote
from tests.methods import test_marginals as marginals_tests
from tests.mutations.planting import Bug, Check


def at(test: object, *arguments: object) -> Check:
    """A test that takes its arguments and a folder."""

    def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        test(*arguments, folder)  # type: ignore[operator]

    return check


def plain(test: object, *arguments: object) -> Check:
    return lambda folder, monkeypatch: test(*arguments)  # type: ignore[operator]


def spoiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    remote.test_a_site_that_spoils_the_step_is_not_brought_back(folder, monkeypatch)


impossible = sites.test_what_no_honest_site_can_send_counts_for_nothing
numbers = sites.test_numbers_that_cannot_be_honest_are_refused

BUGS = [
    Bug(
        "words of a site are not compared",
        rounds,
        "receive",
        "if payload.spec != words.get(name, {}):",
        "if False:",
        at(sites.test_a_spec_is_what_was_declared, "dp-fedavg", "words"),
    ),
    Bug(
        "what is possible is not asked",
        rounds,
        "receive",
        "if why is not None:",
        "if False:",
        at(impossible, "dp-fedavg", sites.times(-100.0)),
    ),
    Bug(
        "a failing step ends the run",
        rounds,
        "surviving_step",
        "if len(inbox) - 1 >= max(1, quorum) else ()",
        "if False else ()",
        at(sites.test_a_generator_that_cannot_be_drawn_from_is_left_out),
    ),
    Bug(
        "who spoiled a step is forgotten",
        Inbox,
        "refuse",
        'write_atomically(self.folder / f"{site}.refused", b"")',
        "pass",
        spoiled,
    ),
    Bug(
        "the inbox of a resumed run is trusted",
        Conductor,
        "_held",
        "check(site, box.raw(site))",
        "pass",
        at(remote.test_a_poisoned_inbox_is_not_read_at_resume),
    ),
    Bug(
        "clipped at the longest update",
        robust,
        "upper_median",
        "[len(values) // 2]",
        "[-1]",
        at(sites.test_an_update_without_a_bound_counts_for_two_sites_at_most, "fedavg", sites.times(-100.0)),
    ),
    Bug(
        "one site outweighs a class",
        robust,
        "class_weights",
        "cut = (others > 0) & (held > most)",
        "cut = held > 1e30",
        plain(sites.test_one_class_is_not_one_sites_where_others_hold_it),
    ),
    Bug(
        "a flipped release counts",
        robust,
        "site_weights",
        "total < -CLEAR * doubt",
        "total < -1e30",
        plain(sites.test_a_flipped_release_within_noise_does_not_count_in_the_pool),
    ),
    Bug(
        "noise bounded by its mean",
        robust,
        "noise_norm",
        "return 1.001 * scale * (math.sqrt(size) + SURE)",
        "return 1.001 * scale * math.sqrt(size)",
        plain(sites.test_noise_stays_within_its_limit_and_the_limit_is_near, "gaussian"),
    ),
    Bug(
        "what was spent is believed",
        statistics,
        "_can_have_spent",
        "return 1 <= count <= most and",
        "return True or",
        at(numbers, "prism-head: next to nothing spent"),
    ),
    Bug(
        "labels of images are believed",
        prism_local,
        "possible",
        "< 0.499 * mass - 1e-6",
        "< -1.0",
        at(numbers, "prism-local: labels rolled"),
    ),
    Bug(
        "long images pull the model",
        image_exchange,
        "pool",
        "if factors[site] == 1.0 else",
        "if True else",
        plain(sites.test_images_that_are_too_long_are_shortened),
    ),
    Bug(
        "a stopped training is a class of its own",
        generators,
        "possible",
        "not bool(counts.any())",
        "False",
        at(sites.test_a_training_that_stopped_costs_only_its_site, "dp-gan"),
    ),
    Bug(
        "one table may count for all others'",
        marginals,
        "possible",
        "return robust.totals_fault(",
        "return None and robust.totals_fault(",
        plain(marginals_tests.test_one_table_that_outweighs_all_others_is_named, 0, 0),
    ),
]
